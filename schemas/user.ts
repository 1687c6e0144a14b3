import { Type, type Static } from '@sinclair/typebox'
import { Id, schemaId, Text } from './fields.js'

export const User = Type.Object({
  id: Id,
  name: Text
}, {
  $id: schemaId('User'),
  description: 'A user with a name',
  examples: [{ id: 2, name: 'Grace' }]
})

export type User = Static<typeof User>
