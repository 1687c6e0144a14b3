import { Type, type Static } from '@sinclair/typebox'
import { idOf } from './component.js'
import { Id, Text, withoutId } from './fields.js'

/** The TypeBox schema of an item, and its type. */
export const Item = Type.Object({
  id: Id,
  name: Text,
  price: Type.Number({ format: 'double', description: 'Finite number' })
}, {
  $id: idOf('Item'),
  description: 'An item with a name and a price',
  examples: [{ id: 2, name: 'Teapot', price: 24.5 }]
})

export type Item = Static<typeof Item>

/** The schema of a new item without an id. */
export const NewItem = withoutId(Item)
