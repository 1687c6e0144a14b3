import { Type, type Static } from '@sinclair/typebox'
import { idOf } from './component.js'
import { Id, Text, withoutId } from './fields.js'

/** The TypeBox schema of a user, and its type. */
export const User = Type.Object({
  id: Id,
  name: Text
}, {
  $id: idOf('User'),
  description: 'A user with a name',
  examples: [{ id: 2, name: 'Grace' }]
})

export type User = Static<typeof User>

/** The schema of a new user without an id. */
export const NewUser = withoutId(User)
