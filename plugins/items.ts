import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { failsWith, json, jsonList, jsonType, PathId, ref, Type } from '../schemas/http.js'
import { Item } from '../schemas/item.js'
import { orNotFound } from './errors.js'
import { bodyFor } from './head.js'

/** The items: listed, fetched one by one, and created. */
const items: FastifyPluginAsyncTypebox = async function items (app) {
  const { items } = app.stores
  app.addSchema(Item)

  app.get('', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'listItems',
      summary: 'List all items',
      tags: ['items'],
      response: {
        200: jsonList(Item, { description: 'Every item, in the order of creation' }),
        ...failsWith()
      }
    }
  }, function listItems (request, reply) {
    reply.type(jsonType)
    return bodyFor(request, items.list())
  })

  app.get('/:item_id', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'getItem',
      summary: 'Get one item',
      tags: ['items'],
      params: Type.Object({ item_id: PathId }),
      response: {
        200: json(Item, { description: 'The first item with that id' }),
        ...failsWith(404)
      }
    }
  }, function getItem (request, reply) {
    reply.type(jsonType)
    return orNotFound(items.first(request.params.item_id))
  })

  app.post('', {
    schema: {
      operationId: 'createItem',
      summary: 'Create an item',
      tags: ['items'],
      body: ref(Item),
      response: {
        201: json(Item, {
          description: 'The item as stored',
          headers: { Location: Type.String({ description: 'The path of the item' }) }
        }),
        ...failsWith(413)
      }
    }
  }, async function createItem (request, reply) {
    const item = await items.append(request.body)
    reply.code(201).type(jsonType).header('location', `${app.prefix}/${request.body.id}`)
    return item
  })
}

export default items
