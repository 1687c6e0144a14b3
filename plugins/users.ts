import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { CreationHeaders, failsWith, idsBy, json, jsonList, jsonType, PageQuery, PathId, ref, Type } from '../schemas/http.js'
import { User, NewUser } from '../schemas/user.js'
import { creationIn } from './creation.js'
import { notFound, orNotFound } from './errors.js'
import { sendList } from './pages.js'
import type { StoresOptions } from './stores.js'

/** The users: listed, fetched one by one, created and deleted. */
const users: FastifyPluginAsyncTypebox<Pick<StoresOptions, 'ids'>> = async function users (app, { ids = 'client' }) {
  const { users } = app.stores
  const create = creationIn(users)
  const Created = ids === 'server' ? NewUser : User
  for (const schema of new Set([User, Created])) app.addSchema(schema)

  app.get('', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'listUsers',
      summary: 'List all users',
      tags: ['users'],
      querystring: PageQuery,
      response: {
        200: jsonList(User, { description: 'Every user, or those of a page, in the order of creation' }),
        ...failsWith()
      }
    }
  }, function listUsers (request, reply) {
    return sendList(request, reply, request.query, users)
  })

  app.get('/:id', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'getUser',
      summary: 'Get one user',
      tags: ['users'],
      params: Type.Object({ id: PathId }),
      response: {
        200: json(User, { description: 'The first user with that id' }),
        ...failsWith(404)
      }
    }
  }, function getUser (request, reply) {
    reply.type(jsonType)
    return orNotFound(users.first(request.params.id))
  })

  app.post('', {
    schema: {
      operationId: 'createUser',
      summary: 'Create a user',
      description: idsBy[ids],
      tags: ['users'],
      headers: CreationHeaders,
      body: ref(Created),
      response: {
        201: json(User, {
          description: 'The user as stored',
          headers: { Location: Type.String({ description: 'The path of the user' }) }
        }),
        ...failsWith(409, 413, 422)
      }
    }
  }, function createUser (request, reply) {
    return create(request, reply, request.body, request.headers['idempotency-key'])
  })

  app.delete('/:id', {
    schema: {
      operationId: 'deleteUser',
      summary: 'Delete one user',
      tags: ['users'],
      params: Type.Object({ id: PathId }),
      response: {
        204: Type.Null({ description: 'The first user with that id is deleted' }),
        ...failsWith(404, 413)
      }
    }
  }, async function deleteUser (request, reply) {
    if (!await users.removeFirst(request.params.id)) throw notFound()
    reply.code(204)
    return null
  })
}

export default users
