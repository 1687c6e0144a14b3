import type { Item } from '../schemas/item.js'
import type { User } from '../schemas/user.js'
import { items } from './items.js'
import { users } from './users.js'

export const definitions = [items, users] as const

/** The records of the collections, by the name of the collection. */
export interface Records {
  items: Item
  users: User
}
