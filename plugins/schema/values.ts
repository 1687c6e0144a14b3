import { pointer } from './walk.js'

const numbers = new WeakMap<object, Map<unknown, number>>()

/**
 * Returns a function that returns the same number for equal values in a root value, whatever the order of their keys. The
 * numbers are kept as long as the root, so that a value in nested arrays is read once.
 */
export function identify (root: object) {
  const known = numbers.get(root) ?? new Map<unknown, number>()
  numbers.set(root, known)
  return numberOf

  function numberOf (value: unknown): number {
    if (typeof value !== 'object' || value === null) return numberFor(JSON.stringify(value))
    const found = known.get(value)
    if (found !== undefined) return found
    const number = numberFor(Array.isArray(value)
      ? `[${value.map(numberOf)}`
      : `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}:${numberOf(part)}`).sort()}`)
    known.set(value, number)
    return number
  }

  function numberFor (text: string) {
    const number = known.get(text) ?? known.size
    known.set(text, number)
    return number
  }
}

/** The number of values, and of characters in their names, of a value whose problems a person can read. */
const maxSize = 4000

export function isSmall (value: unknown) {
  let size = 0
  return counted(value)

  function counted (value: unknown): boolean {
    if (++size > maxSize) return false
    if (typeof value !== 'object' || value === null) return true
    if (Array.isArray(value)) return value.every(counted)
    for (const name in value) {
      size += name.length
      if (!counted(value[name as keyof typeof value])) return false
    }
    return true
  }
}

/** The path of a number that is too large for JavaScript, and that JSON cannot represent. */
export function pathOfInfinity (value: unknown): string | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : ''
  if (typeof value !== 'object' || value === null) return
  // Reading the names of a long array takes longer than its values.
  for (const name of Array.isArray(value) ? value.keys() : Object.keys(value)) {
    const path = pathOfInfinity(value[name as keyof typeof value])
    if (path !== undefined) return pointer(name) + path
  }
}
