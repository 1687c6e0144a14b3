import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { failsWith, json, jsonList, jsonType, PathId, ref, Type } from '../schemas/http.js'
import { User } from '../schemas/user.js'
import { notFound, orNotFound } from './errors.js'
import { bodyFor } from './head.js'

/** The users: listed, fetched one by one, created and deleted. */
const users: FastifyPluginAsyncTypebox = async function users (app) {
  const { users } = app.stores
  app.addSchema(User)

  app.get('', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'listUsers',
      summary: 'List all users',
      tags: ['users'],
      response: {
        200: jsonList(User, { description: 'Every user, in the order of creation' }),
        ...failsWith()
      }
    }
  }, function listUsers (request, reply) {
    reply.type(jsonType)
    return bodyFor(request, users.list())
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
      tags: ['users'],
      body: ref(User),
      response: {
        201: json(User, {
          description: 'The user as stored',
          headers: { Location: Type.String({ description: 'The path of the user' }) }
        }),
        ...failsWith(413)
      }
    }
  }, async function createUser (request, reply) {
    const user = await users.append(request.body)
    reply.code(201).type(jsonType).header('location', `${app.prefix}/${request.body.id}`)
    return user
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
