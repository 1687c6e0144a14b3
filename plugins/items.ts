import { Item } from '../schemas/item.js'
import { defineCollection } from './definition/definition.js'

export const items = defineCollection({
  name: 'items',
  schema: Item,
  operations: ['list', 'get', 'create'],
  idSource: 'client',
  ignoreUnknownParameters: true,
  idParameter: 'item_id',
  seed: [{ id: 1, name: 'Lamp', price: 42.5 }]
})
