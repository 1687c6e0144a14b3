// One collection alone, in a store that the host has written itself.
import Fastify from 'fastify'
import { collection, items } from 'fastify-items-users'

const stored = []

const store = {
  append (records) {
    stored.push(...records)
    return records
  },
  first: id => stored.find(record => record.id === id),
  select ({ limit = Infinity, after = '0' }) {
    const end = Number(after) + limit
    return { records: stored.slice(Number(after), end), next: end < stored.length ? String(end) : undefined }
  },
  change: () => undefined,
  count: () => stored.length
}

export function build () {
  const app = Fastify()
  app.register(collection, { ...items, prefix: '/things', store })
  return app
}
