// Uses every generated client against the running service, and prints what happened.
import { heyApi } from './hey-api.js'
import { kubb } from './kubb.js'
import { oazapfts } from './oazapfts.js'
import { openapiFetch } from './openapi-fetch.js'
import { orval7 } from './orval7.js'
import { orval8 } from './orval8.js'
import { swaggerTypescriptApi } from './swagger-typescript-api.js'

/** What every client must be able to do. */
export interface Client {
  /** Returns a page of the items, and its `Link` header. */
  page (query: { limit: number, after?: string }): Promise<{ items: Item[] | undefined, link: string | null | undefined }>
  create (item: Item, key: string): Promise<Item | undefined>
  get (id: number): Promise<Item | undefined>
  /** Creates a user and deletes it. Returns the status. */
  deleteUser (user: { id: number, name: string }): Promise<number>
  /** Creates an item with a wrong id, and returns the problems from the typed error. */
  problems (item: Item): Promise<{ path: string, message: string }[] | undefined>
  /** Requests an item that does not exist, and returns the detail from the typed error. */
  detail (id: number): Promise<string | undefined>
}

export interface Item {
  id: number
  name: string
  price: number
}

const clients = { heyApi, kubb, oazapfts, openapiFetch, orval7, orval8, swaggerTypescriptApi }

for (const [n, [name, client]] of Object.entries(clients).entries()) {
  const item = { id: 100 + n, name: `${name} 🫖`, price: 24.5 }
  await client.create(item, name)
  const repeated = await client.create(item, name)
  const found: Item[] = []
  let after: string | undefined
  do {
    const { items = [], link } = await client.page({ limit: 2, ...after && { after } })
    found.push(...items)
    after = /after=([^&>]+)/.exec(link ?? '')?.[1]
  } while (after)
  console.log(JSON.stringify({
    name,
    repeated,
    found: found.filter(({ id }) => id === item.id),
    got: await client.get(item.id),
    deleted: await client.deleteUser({ id: item.id, name }),
    problems: await client.problems({ ...item, id: 0.5 }),
    detail: await client.detail(99)
  }))
}
