// A host whose schemas come from other libraries, and from functions of its own.
import { Type, type Static, type TObject } from '@sinclair/typebox'
import Fastify, { type FastifyInstance, type FastifySchema, type RouteOptions } from 'fastify'
import { collection, defineCollection, docs, type Definition, type Store } from 'fastify-items-users'
import * as typebox from 'typebox'
import { z } from 'zod'

const Order = Type.Object({ id: Type.Integer(), quantity: Type.Integer(), note: Type.Optional(Type.String()) })
interface Note { id: number, text: string }
declare const notes: Store<Note>

/** A function with a more precise argument, as in fastify-type-provider-zod. */
interface Route { schema: FastifySchema & { hide?: boolean }, url: string, route: RouteOptions, openapiObject: object }
declare const transform: (route: Route) => { schema: FastifySchema, url: string }

const properties = { id: { type: 'integer' }, text: { type: 'string' } } as const
const plain = { type: 'object', required: ['id', 'text'], properties } as const
const modern = typebox.Type.Object({ id: typebox.Type.Integer(), text: typebox.Type.String() })
const zod = z.object({ id: z.int(), text: z.string() })

export const app = Fastify()
app.register(collection, { prefix: '/plain', name: 'plain', schema: plain, seed: [{ id: 1, text: 'a' }] })
app.register(collection, { prefix: '/modern', name: 'modern', schema: modern, seed: [{ id: 1, text: 'a' }] })
app.register(collection, { prefix: '/zod', name: 'zod', schema: z.toJSONSchema(zod), store: notes })
app.register(collection, { prefix: '/notes', name: 'notes', schema: plain, store: async () => notes })
app.register(collection, defineCollection({ name: 'orders', schema: Order, seed: [{ id: 1, quantity: 2 }] }))
app.register(collection, defineCollection({ name: 'plain', schema: plain, store: notes }))
app.register(docs, { transform })
serve(app, 'orders', Order, [{ id: 1, quantity: 2 }])
serveDefined(app, 'orders', Order)
register(app, defineCollection({ name: 'modern', schema: modern }))

/** Generic helpers. */
type Seed<S extends TObject> = (Static<S> & { id: number })[]

export function serve<S extends TObject> (app: FastifyInstance, name: string, schema: S, seed: Seed<S>) {
  app.register(collection, { prefix: `/${name}`, name, schema, seed })
}

export function serveDefined<S extends TObject> (app: FastifyInstance, name: string, schema: S) {
  app.register(collection, defineCollection({ name, schema }))
}

export function register<S extends object> (app: FastifyInstance, definition: Definition<S>) {
  app.register(collection, definition)
  app.register(collection, { ...definition, prefix: '/x' })
}

// @ts-expect-error a record of the seed has another type
defineCollection({ name: 'orders', schema: Order, seed: [{ id: 1, quantity: '2' }] })
// @ts-expect-error a record of the seed has no id
app.register(collection, { name: 'plain', schema: plain, seed: [{ text: 'a' }] })
