// What every peer needs to answer as the service does, written as one would by hand.
export const items = [{ id: 1, name: 'Lamp', price: 42.5 }]

export const notFound = { detail: 'Not found' }

export const port = Number(process.env.PORT)

const types = { integer: Number.isSafeInteger, string: value => typeof value === 'string', number: Number.isFinite }
const fields = { id: 'integer', name: 'string', price: 'number' }

/** The body of a 400, or nothing where the item is valid. */
export function refusal (item) {
  const errors = []
  for (const name in fields) {
    if (item[name] === undefined) errors.push({ in: 'body', path: `/${name}`, message: 'is required' })
  }
  for (const name in fields) {
    if (item[name] === undefined || types[fields[name]](item[name])) continue
    const message = `must be ${fields[name] === 'integer' ? 'an' : 'a'} ${fields[name]}`
    errors.push({ in: 'body', path: `/${name}`, message })
  }
  if (errors.length === 0) return
  const reasons = errors.map(({ path, message }) => `${path.slice(1)} ${message}`)
  return { detail: `Invalid body: ${reasons.join(', ')}.`, errors }
}

export function stored ({ id, name, price }) {
  const item = { id, name, price }
  items.push(item)
  return item
}
