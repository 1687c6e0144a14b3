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
  appendAll (added) {
    records.push(...added)
    return json(added)
  },
  first: id => json(records.find(record => record.id === id)),
  select ({ limit = Infinity, after = '0' }) {
    const end = Number(after) + limit
    return { list: json(records.slice(Number(after), end)), next: end < records.length ? String(end) : undefined }
  },
  change: () => undefined,
  count: () => records.length
}

export function build () {
  const app = Fastify()
  app.register(collection, { ...items, prefix: '/things', store })
  return app
}
