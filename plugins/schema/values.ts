import { pointer } from './walk.js'

const texts = new WeakMap<object, Map<unknown, string>>()

/** A longer text of an array or object is replaced, in characters. */
const maxText = 30

/**
 * Returns a function that returns the same text for equal values in a root value, whatever the order of their keys. The long
 * texts are kept as long as the root, so that a value in nested arrays is read once.
 */
export function identify (root: object) {
  const known = texts.get(root) ?? new Map<unknown, string>()
  texts.set(root, known)
  return textOf

  function textOf (value: unknown): string {
    // Arrays with one item in each other are one step, because a body can have many of them.
    let depth = 0
    for (; Array.isArray(value) && value.length === 1; depth++) value = value[0]
    const isScalar = typeof value !== 'object' || value === null
    const text = isScalar ? typeof value === 'string' ? JSON.stringify(value) : String(value) : known.get(value) ?? shortened(value as object)
    return depth === 0 ? text : `${depth}[${text}`
  }

  /** The text of an array or object, or a short one that stands for it. Each part ends with a comma. */
  function shortened (value: object) {
    let text = '['
    if (Array.isArray(value)) for (const item of value) text += `${textOf(item)},`
    else {
      const names = Object.keys(value).sort()
      text = `{${JSON.stringify(names)}`
      for (const name of names) text += `${textOf(value[name as keyof typeof value])},`
    }
    if (text.length <= maxText) return text
    const short = known.get(text) ?? `#${known.size}`
    known.set(text, short).set(value, short)
    return short
  }
}

export function areUnique (items: unknown[], textOf: (value: unknown) => string) {
  const seen = new Set<string>()
  return items.every(item => seen.size < seen.add(textOf(item)).size)
}

/**
 * Returns a function that returns whether a number is a multiple of another one, as both are written: in JavaScript, 19.99 / 0.01
 * is 1998.9999999999998. Ajv only looks at the quotient. What it accepts is accepted, except for large integers.
 */
export function multipleCheck (divisor: number) {
  const [digits = '', exponent] = divisor.toExponential().split('e')
  const decimals = digits.slice(2).length
  const [factor, power] = [Number(digits.replace('.', '')), Number(exponent) - decimals]
  return function isMultiple (number: number) {
    if (Number.isSafeInteger(number) && Number.isInteger(divisor)) return number % divisor === 0
    const quotient = number / divisor
    if (Number.isSafeInteger(quotient)) return true
    const multiple = Math.round(quotient) * factor
    return Number.isSafeInteger(multiple) ? Number(`${multiple}e${power}`) === number : Number.isInteger(quotient)
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

/** The path of a number that is too large for JavaScript, and that JSON cannot represent, in all parts of a value or in these. */
export function pathOfInfinity (value: unknown, names?: string[]): string | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : ''
  if (typeof value !== 'object' || value === null) return
  // Reading the names of a long array takes longer than its values.
  for (const name of names ?? (Array.isArray(value) ? value.keys() : Object.keys(value))) {
    const path = pathOfInfinity(value[name as keyof typeof value])
    if (path !== undefined) return pointer(name) + path
  }
}
