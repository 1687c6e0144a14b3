// A store that is a class, given as a function of the request. It keeps what it gets.
import Fastify from 'fastify'
import { collection } from 'fastify-items-users'

class Records {
  #records = []

  append (records) {
    const numbered = records.map((record, n) => ({ id: this.#records.length + n + 1, ...record }))
    this.#records.push(...numbered)
    return numbered
  }

  count () {
    return this.#records.length
  }

  first (id) {
    return this.#records.find(record => record.id === id)
  }

  select ({ limit = Infinity, after = '0' }) {
    const end = Number(after) + limit
    const next = end < this.#records.length ? String(end) : undefined
    return { records: this.#records.slice(Number(after), end), next }
  }

  change (id, change) {
    const index = this.#records.findIndex(record => record.id === id)
    if (index < 0) return
    this.#records[index] = change(this.#records[index])
    return this.#records[index]
  }
}

const city = { type: 'string' }
const Address = { type: 'object', required: ['city'], additionalProperties: false, properties: { city } }
const Order = {
  type: 'object',
  required: ['id', 'quantity'],
  properties: {
    id: { type: 'integer' },
    quantity: { type: 'integer' },
    address: Address,
    stops: { type: 'array', items: Address }
  }
}

export async function build () {
  const app = Fastify()
  const store = new Records()
  app.register(collection, { prefix: '/orders', name: 'orders', schema: Order, store: () => store })
  return app
}
