// A store that is a class, given as it is and as a function of the request. It keeps what it gets.
import Fastify from 'fastify'
import { collection } from 'fastify-items-users'

class Records {
  #records = []

  append (record) {
    this.#records.push({ id: this.#records.length + 1, ...record })
    return JSON.stringify(this.#records.at(-1))
  }

  appendAll (records) {
    return `[${records.map(record => this.append(record))}]`
  }

  count () {
    return this.#records.length
  }

  first (id) {
    return JSON.stringify(this.#records.find(record => record.id === id))
  }

  select ({ limit = Infinity, after = '0' }) {
    const end = Number(after) + limit
    return { list: JSON.stringify(this.#records.slice(Number(after), end)), next: end < this.#records.length ? String(end) : undefined }
  }

  change (id, change) {
    const index = this.#records.findIndex(record => record.id === id)
    if (index < 0) return
    this.#records[index] = change(JSON.stringify(this.#records[index]))
    return JSON.stringify(this.#records[index])
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
