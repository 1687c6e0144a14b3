// A store that is a class, given as it is and as a function of the request. It keeps what it gets.
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
    return { records: this.#records.slice(Number(after), end), next: end < this.#records.length ? String(end) : undefined }
  }

  change (id, change) {
    const index = this.#records.findIndex(record => record.id === id)
    if (index < 0) return
    this.#records[index] = change(this.#records[index])
    return this.#records[index]
  }
}

const Address = { type: 'object', required: ['city'], additionalProperties: false, properties: { city: { type: 'string' } } }
const Order = {
  type: 'object',
  required: ['id', 'quantity'],
  properties: {
    id: { type: 'integer' },
    quantity: { type: 'integer' },
    address: Address,
    stops: { type: 'array', items: Address },
    open: { type: 'object', properties: { a: { type: 'integer' } } }
  }
}

export async function build ({ isFunction }) {
  const app = Fastify()
  const store = new Records()
  app.register(collection, { prefix: '/orders', name: 'orders', schema: Order, store: isFunction ? () => store : store })
  return app
}
