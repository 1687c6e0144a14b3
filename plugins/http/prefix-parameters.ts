import { Type, type TObject } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { metadata } from './plugin.js'

/** Adds the parameters of a prefix, such as `/:tenant/api`, to the schemas of routes with parameters of their own. */
export default fp(async function prefixParameters (app) {
  app.addHook('onRoute', function addPrefixParameters (route) {
    const { params, ...schema } = route.schema as { params?: TObject }
    if (!params) return // @fastify/swagger documents the parameters of other routes by itself
    const inUrl = Array.from(route.url.matchAll(/(?<!:):(\w+)/g), ([, name = '']) => [name, Type.String()])
    route.schema = { ...schema, params: Type.Object({ ...Object.fromEntries(inUrl), ...params.properties }) }
  })
}, metadata('prefix-parameters'))
