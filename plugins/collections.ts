import { items } from './items.js'
import { users } from './users.js'

export const collections = [items, users] as const
