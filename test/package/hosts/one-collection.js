// One collection alone, in a store that the host has written itself.
import Fastify from 'fastify'
import { collection, items } from 'fastify-items-users'

const records = []
const json = JSON.stringify

const store = {
  append (record) {
    records.push(record)
    return json(record)
  },
  first: id => json(records.find(record => record.id === id)),
  list: () => json(records),
  page: (limit, after = 0) => ({
    list: json(records.slice(after, after + limit)),
    next: after + limit < records.length ? after + limit : undefined
  }),
  change: () => undefined,
  size: () => records.length
}

export function build () {
  const app = Fastify()
  app.register(collection, { ...items, prefix: '/things', store })
  return app
}
