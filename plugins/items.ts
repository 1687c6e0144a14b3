import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { ref } from '../schemas/component.js'
import { PathId } from '../schemas/fields.js'
import { Item, NewItem } from '../schemas/item.js'
import { PageQuery } from '../schemas/pagination.js'
import { compress } from './http/compression.js'
import { create, CreationHeaders, idSources } from './http/create-record.js'
import { ReadingHeaders, sendRecord } from './http/etags.js'
import { sendList } from './http/pagination.js'
import { metadata } from './http/plugin.js'
import { errorResponses, etagHeader, json, jsonList, notModified, routeDefaults } from './http/responses.js'
import { openCollection, type CollectionOptions } from './stores.js'
import type { Collection } from './stores/store.js'

/** The collection of the items. */
export const collection: Collection<Item> = {
  name: 'items',
  schema: Item,
  seed: [{ id: 1, name: 'Lamp', price: 42.5 }]
}

/** The routes of the items. */
const items: FastifyPluginAsyncTypebox<CollectionOptions<Item>> = async function items (app, options) {
  const { idSource = 'client' } = options
  const New = idSource === 'server' ? NewItem : Item
  const store = await openCollection(app, collection, New, options)

  app.get('', {
    ...routeDefaults,
    onSend: compress,
    schema: {
      operationId: 'listItems',
      summary: 'List all items',
      description: 'The items are in order of creation. With `limit`, the response is one page, and its `Link` header leads to the next page.',
      tags: ['items'],
      querystring: PageQuery,
      headers: ReadingHeaders,
      response: {
        200: jsonList(Item, { description: 'All items, or one page, in order of creation' }),
        304: notModified,
        ...errorResponses(412)
      }
    }
  }, function listItems (request, reply) {
    return sendList(request, reply, store, request.query)
  })

  app.get('/:item_id', {
    ...routeDefaults,
    schema: {
      operationId: 'getItem',
      summary: 'Get one item',
      description: 'If several items have this id, it is the one that was created first.',
      tags: ['items'],
      params: Type.Object({ item_id: PathId }),
      headers: ReadingHeaders,
      response: {
        200: json(Item, { description: 'The first item with this id', headers: etagHeader }),
        304: notModified,
        ...errorResponses(404, 412)
      }
    }
  }, function getItem (request, reply) {
    return sendRecord(request, reply, store.first(request.params.item_id))
  })

  app.post('', {
    ...routeDefaults,
    schema: {
      operationId: 'createItem',
      summary: 'Create an item',
      description: idSources[idSource],
      tags: ['items'],
      headers: CreationHeaders,
      body: ref(New),
      response: {
        201: json(Item, {
          description: 'The stored item',
          headers: { Location: Type.String({ description: 'The URL of the item, relative to the URL of the request' }) }
        }),
        ...errorResponses(409, 412, 413, 422)
      }
    }
  }, function createItem (request, reply) {
    return create(request, reply, store, request.body, request.headers['idempotency-key'])
  })
}

export default fp(items, { ...metadata('items'), encapsulate: true })
