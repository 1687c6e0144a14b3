import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { CreationHeaders, errorResponses, firstOfMany, idSources, json, jsonList, orderOfLists, PageQuery, PathId, recordHeaders, ref, Type } from '../schemas/http.js'
import { Item, NewItem } from '../schemas/item.js'
import { applyApiDefaults } from './http/api-defaults.js'
import { create } from './http/create-record.js'
import { orNotFound } from './http/errors.js'
import { sendList } from './http/pagination.js'
import { storeFor, type CollectionOptions } from './stores.js'
import type { Collection } from './stores/store.js'

const collection: Collection<Item> = {
  name: 'items',
  schema: Item,
  seed: [{ id: 1, name: 'Lamp', price: 42.5 }]
}

/** The items: listed, fetched one by one, and created. */
const items: FastifyPluginAsyncTypebox<CollectionOptions<Item>> = async function items (app, options) {
  const { idSource = 'client' } = options
  const New = idSource === 'server' ? NewItem : Item
  await applyApiDefaults(app)
  const itemsFor = await storeFor(app, collection, options)
  for (const schema of new Set([Item, New])) app.addSchema(schema)

  app.get('', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'listItems',
      summary: 'List all items',
      description: orderOfLists,
      tags: ['items'],
      querystring: PageQuery,
      response: {
        200: jsonList(Item, { description: 'Every item, or those of a page, in the order of creation' }),
        ...errorResponses()
      }
    }
  }, function listItems (request, reply) {
    return sendList(request, reply, itemsFor(request), request.query)
  })

  app.get('/:item_id', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'getItem',
      summary: 'Get one item',
      description: firstOfMany,
      tags: ['items'],
      params: Type.Object({ item_id: PathId }),
      response: {
        200: json(Item, { description: 'The first item with that id' }),
        ...errorResponses(404)
      }
    }
  }, function getItem (request, reply) {
    reply.headers(recordHeaders)
    return orNotFound(itemsFor(request).first(request.params.item_id))
  })

  app.post('', {
    schema: {
      operationId: 'createItem',
      summary: 'Create an item',
      description: idSources[idSource],
      tags: ['items'],
      headers: CreationHeaders,
      body: ref(New),
      response: {
        201: json(Item, {
          description: 'The item as stored',
          headers: { Location: Type.String({ description: 'The path of the item' }) }
        }),
        ...errorResponses(409, 413, 422)
      }
    }
  }, function createItem (request, reply) {
    return create(request, reply, itemsFor(request), request.body, request.headers['idempotency-key'])
  })
}

export default items
