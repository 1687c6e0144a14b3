import { Type, type Static } from '@sinclair/typebox'
import { Id, idOf, Text, withoutId } from './http.js'

export const User = Type.Object({
  id: Id,
  name: Text
}, {
  $id: idOf('User'),
  description: 'Someone with a name',
  examples: [{ id: 2, name: 'Grace' }]
})

export type User = Static<typeof User>

export const NewUser = withoutId(User)
