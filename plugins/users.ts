import { User } from '../schemas/user.js'
import { defineCollection } from './definition/definition.js'

export const users = defineCollection({
  name: 'users',
  schema: User,
  operations: ['list', 'get', 'create', 'delete'],
  idSource: 'client',
  ignoreUnknownParameters: true,
  seed: [{ id: 1, name: 'Ada' }]
})
