import { Type, type Static } from '@sinclair/typebox'
import { Id, schemaId, Text } from './fields.js'

export const Item = Type.Object({
  id: Id,
  name: Text,
  price: Type.Number({ format: 'double', description: 'Finite number' })
}, {
  $id: schemaId('Item'),
  description: 'An item with a name and a price',
  examples: [{ id: 2, name: 'Teapot', price: 24.5 }]
})

export type Item = Static<typeof Item>
