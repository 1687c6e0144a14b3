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
    // Arrays with one item in each other are one step, because a body can have many of them.
    let depth = 0
    for (; Array.isArray(value) && value.length === 1; depth++) value = value[0]
    const number = typeof value === 'string' ? numberFor(`"${value}`) : known.get(value) ?? numberFor(value, partsIn(value))
    return depth === 0 ? number : numberFor(`${depth}[${number}`)
  }

  /** The text that stands for an array or object, with the numbers of its values. */
  function partsIn (value: unknown) {
    if (Array.isArray(value)) return `[${value.map(numberOf)}`
    if (typeof value !== 'object' || value === null) return
    return `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}:${numberOf(part)}`).sort()}`
  }

  /** The number of a value. Another one with the same text has the same number. */
  function numberFor (value: unknown, text?: string) {
    const number = known.get(text ?? value) ?? known.size
    known.set(value, number)
    if (text !== undefined) known.set(text, number)
    return number
  }
}

export function areUnique (items: unknown[], numberOf: (value: unknown) => number) {
  const seen = new Set<number>()
  return items.every(item => seen.size < seen.add(numberOf(item)).size)
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
