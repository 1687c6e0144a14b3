import { Type, type Static } from '@sinclair/typebox'
import { idOf } from './component.js'
import { Id, Text, withoutId } from './fields.js'

export const Item = Type.Object({
  id: Id,
  name: Text,
  price: Type.Number({ description: 'Finite number' })
}, {
  $id: idOf('Item'),
  description: 'An item with a name and a price',
  examples: [{ id: 2, name: 'Teapot', price: 24.5 }]
})

export type Item = Static<typeof Item>

export const NewItem = withoutId(Item)
