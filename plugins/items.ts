import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { CreationHeaders, failsWith, idsBy, json, jsonList, jsonType, PageQuery, PathId, ref, Type } from '../schemas/http.js'
import { Item, NewItem } from '../schemas/item.js'
import { creationIn } from './creation.js'
import { orNotFound } from './errors.js'
import { sendList } from './pages.js'
import type { StoresOptions } from './stores.js'

/** The items: listed, fetched one by one, and created. */
const items: FastifyPluginAsyncTypebox<Pick<StoresOptions, 'ids'>> = async function items (app, { ids = 'client' }) {
  const { items } = app.stores
  const create = creationIn(items)
  const Created = ids === 'server' ? NewItem : Item
  for (const schema of new Set([Item, Created])) app.addSchema(schema)

  app.get('', {
    exposeHeadRoute: true,
    schema: {
      operationId: 'listItems',
      summary: 'List all items',
      tags: ['items'],
      querystring: PageQuery,
      response: {
        200: jsonList(Item, { description: 'Every item, or those of a page, in the order of creation' }),
        ...failsWith()
      }
    }
  }, function listItems (request, reply) {
    return sendList(request, reply, request.query, items)
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
      description: idsBy[ids],
      tags: ['items'],
      headers: CreationHeaders,
      body: ref(Created),
      response: {
        201: json(Item, {
          description: 'The item as stored',
          headers: { Location: Type.String({ description: 'The path of the item' }) }
        }),
        ...failsWith(409, 413, 422)
      }
    }
  }, function createItem (request, reply) {
    return create(request, reply, request.body, request.headers['idempotency-key'])
  })
}

export default items
