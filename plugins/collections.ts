import { items } from './items.js'
import { users } from './users.js'

/** The collections of the service. */
export const collections = [items, users] as const
