import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { ref } from '../schemas/component.js'
import { PathId } from '../schemas/fields.js'
import { NewUser, User } from '../schemas/user.js'
import { PageQuery } from '../schemas/pagination.js'
import { compress } from './http/compression.js'
import { create, CreationHeaders, idSources } from './http/create-record.js'
import { notFound } from './http/errors.js'
import { ChangeHeaders, isExpectedBy, ReadingHeaders, sendRecord } from './http/etags.js'
import { sendList } from './http/pagination.js'
import { metadata } from './http/plugin.js'
import { cacheHeaders, errorResponses, etagHeader, json, jsonList, notModified, routeDefaults, setHeaders } from './http/responses.js'
import { openCollection, type CollectionOptions } from './stores.js'
import type { Collection } from './stores/store.js'

/** The collection of the users. */
export const collection: Collection<User> = {
  name: 'users',
  schema: User,
  seed: [{ id: 1, name: 'Ada' }]
}

/** The routes of the users. */
const users: FastifyPluginAsyncTypebox<CollectionOptions<User>> = async function users (app, options) {
  const { idSource = 'client' } = options
  const New = idSource === 'server' ? NewUser : User
  const store = await openCollection(app, collection, New, options)

  app.get('', {
    ...routeDefaults,
    onSend: compress,
    schema: {
      operationId: 'listUsers',
      summary: 'List all users',
      description: 'The users are in order of creation. With `limit`, the response is one page, and its `Link` header leads to the next page.',
      tags: ['users'],
      querystring: PageQuery,
      headers: ReadingHeaders,
      response: {
        200: jsonList(User, { description: 'All users, or one page, in order of creation' }),
        304: notModified,
        ...errorResponses(412)
      }
    }
  }, function listUsers (request, reply) {
    return sendList(request, reply, store, request.query)
  })

  app.get('/:id', {
    ...routeDefaults,
    schema: {
      operationId: 'getUser',
      summary: 'Get one user',
      description: 'If several users have this id, it is the one that was created first.',
      tags: ['users'],
      params: Type.Object({ id: PathId }),
      headers: ReadingHeaders,
      response: {
        200: json(User, { description: 'The first user with this id', headers: etagHeader }),
        304: notModified,
        ...errorResponses(404, 412)
      }
    }
  }, function getUser (request, reply) {
    return sendRecord(request, reply, store.first(request.params.id))
  })

  app.post('', {
    ...routeDefaults,
    schema: {
      operationId: 'createUser',
      summary: 'Create a user',
      description: idSources[idSource],
      tags: ['users'],
      headers: CreationHeaders,
      body: ref(New),
      response: {
        201: json(User, {
          description: 'The stored user',
          headers: { Location: Type.String({ description: 'The URL of the user, relative to the URL of the request' }) }
        }),
        ...errorResponses(409, 412, 413, 422)
      }
    }
  }, function createUser (request, reply) {
    return create(request, reply, store, request.body, request.headers['idempotency-key'])
  })

  app.delete('/:id', {
    ...routeDefaults,
    schema: {
      operationId: 'deleteUser',
      summary: 'Delete one user',
      description: 'If several users have this id, the one that was created first is deleted.',
      tags: ['users'],
      params: Type.Object({ id: PathId }),
      headers: ChangeHeaders,
      response: {
        204: Type.Unsafe<undefined>(Type.Null({ description: 'The first user with this id is deleted' })),
        ...errorResponses(404, 412, 413)
      }
    }
  }, async function deleteUser (request, reply) {
    if (!await store.removeFirst(request.params.id, isExpectedBy(request))) throw notFound()
    setHeaders(request, reply, cacheHeaders)
    return reply.code(204).send(undefined)
  })
}

export default fp(users, { ...metadata('users'), encapsulate: true })
