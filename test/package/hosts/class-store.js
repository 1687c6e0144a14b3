// A store that is a class, given as it is and as a function of the request. It keeps what it gets.
import Fastify from 'fastify'
import { collection } from 'fastify-items-users'

class Records {
  #records = []

  append (record) {
    this.#records.push({ id: this.#records.length + 1, ...record })
    return JSON.stringify(this.#records.at(-1))
  }

  first (id) {
    return JSON.stringify(this.#records.find(record => record.id === id))
  }

  list () {
    return JSON.stringify(this.#records)
  }

  page (limit, after = -1) {
    const end = after + 1 + limit
    return { list: JSON.stringify(this.#records.slice(after + 1, end)), next: end < this.#records.length ? end - 1 : undefined }
  }

  change (id, change) {
    const index = this.#records.findIndex(record => record.id === id)
    if (index < 0) return
    this.#records[index] = change(JSON.stringify(this.#records[index]))
    return JSON.stringify(this.#records[index])
  }

  size () {
    return this.#records.length
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
