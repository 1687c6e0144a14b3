// What every peer needs to answer as the service does, written as one would by hand.
import { readFileSync } from 'node:fs'

export const port = Number(process.env.PORT)

export const { items } = JSON.parse(readFileSync(process.env.SEED_FILE))

export const notFound = { detail: 'Not found' }

/** The first item with the id in a path. */
export function find (text) {
  const id = Number(text)
  return items.find(item => item.id === id)
}

export function stored ({ id, name, price }) {
  const item = { id, name, price }
  items.push(item)
  return item
}

const types = { integer: Number.isSafeInteger, string: value => typeof value === 'string', number: Number.isFinite }
const fields = { id: 'integer', name: 'string', price: 'number' }

/** The body of a 400, or nothing if the item is valid. */
export function refusal (item) {
  const errors = []
  for (const name in fields) {
    if (item[name] === undefined) errors.push({ in: 'body', path: `/${name}`, message: 'is required' })
  }
  for (const name in fields) {
    if (item[name] === undefined || types[fields[name]](item[name])) continue
    const article = fields[name] === 'integer' ? 'an' : 'a'
    errors.push({ in: 'body', path: `/${name}`, message: `must be ${article} ${fields[name]}` })
  }
  return errors.length > 0 ? invalid(errors) : undefined
}

/** The body of a 400 with these problems. */
export function invalid (errors) {
  const reasons = errors.map(({ path, message }) => `${path.slice(1)} ${message}`)
  return { detail: `Invalid body: ${reasons.join(', ')}.`, errors }
}
