import { Type, type Static } from '@sinclair/typebox'
import fc from 'fast-check'
import { Id } from '../../schemas/fields.js'

/** A record whose fields can be queried. */
export const loanSchema = Type.Object({
  id: Id,
  member: Type.Integer(),
  price: Type.Optional(Type.Number()),
  title: Type.Optional(Type.String({ maxLength: 500 })),
  status: Type.Union([Type.Literal('open'), Type.Literal('late'), Type.Literal('back')]),
  paid: Type.Optional(Type.Boolean())
}, { $id: 'Loan' })
export type Loan = Static<typeof loanSchema>

export const filters = ['member', 'price', 'title', 'status', 'paid'] as const

const texts = [
  '', 'L', 'Lord', 'lord', 'Lord of', 'Lore', 'Lose', 'a%b', 'a_b', "it's", '"x"', '\u{1f600}', '\u{10ffff}', '\ufffd',
  '\ud7ff', '\ue000', 'é', 'e\u0301', 'ß', 'SS', '10', '9'
]
const numbers = [0, -0, 1, -1, 0.1, 1e21, -1e21, 5e-324, 1.7e308, 3.5, 2 ** 53]

/** Values with many duplicates, and those that programs order in different ways. */
const values = {
  member: fc.integer({ min: -2, max: 4 }),
  price: fc.constantFrom(...numbers),
  title: fc.constantFrom(...texts),
  status: fc.constantFrom('open' as const, 'late' as const, 'back' as const),
  paid: fc.boolean()
}

export const loans = fc.array(fc.record({ id: fc.integer({ min: 1, max: 50 }), ...values },
  { requiredKeys: ['id', 'member', 'status'] }),
{ maxLength: 60 })
  .map(records =>
    records.map(record =>
      Object.fromEntries(Object.keys(loanSchema.properties).filter(name => name in record)
        .map(name => [name, Reflect.get(record, name)])) as Loan))

const comparisons = Object.entries({
  member: values.member,
  price: values.price,
  title: values.title,
  status: values.status
})
  .flatMap(([name, value]) => ['gt', 'gte', 'lt', 'lte'].map(operator => [`${name}.${operator}`, value] as const))

const conditions = Object.entries({
  ...Object.fromEntries(Object.entries(values).map(([name, value]) =>
    [
      name,
      fc.oneof(value as fc.Arbitrary<unknown>, fc.array(value as fc.Arbitrary<unknown>, { minLength: 1, maxLength: 3 }))
    ])),
  ...Object.fromEntries(comparisons),
  'title.prefix': values.title,
  'status.prefix': fc.constantFrom('o', 'la', ''),
  ...Object.fromEntries(['price.exists', 'title.exists', 'paid.exists'].map(name => [name, fc.boolean()]))
})

/** Up to three conditions, and an order. */
export const queries = fc.record({
  where: fc.subarray(conditions, { maxLength: 3 }).chain(some => fc.record(Object.fromEntries(some))),
  sort: fc.option(fc.constantFrom(...filters.flatMap(name => [name, `-${name}`])), { nil: undefined })
})

/** What a query selects: a definition that is as simple as possible. */
export function selected (records: readonly Loan[], { where, sort }: {
  where: Record<string, unknown>
  sort?: string
}) {
  const found = records.filter(record => Object.entries(where).every(([name, value]) => {
    const [field = '', operator] = name.split('.')
    const actual: unknown = Reflect.get(record, field)
    if (operator === 'exists') return (actual !== undefined) === value
    if (actual === undefined) return false
    if (operator === undefined) return [value].flat().some(one => one === actual)
    if (operator === 'prefix') return String(actual).startsWith(String(value))
    const order = inOrder(actual, value)
    return { gt: order > 0, gte: order >= 0, lt: order < 0, lte: order <= 0 }[operator]
  }))
  if (sort === undefined) return found
  const field = sort.replace(/^-/, '')
  const sorted = found.map((record, n) => ({ record, n, value: Reflect.get(record, field) as unknown }))
    .sort((one, other) => inOrder(one.value, other.value) || one.n - other.n).map(({ record }) => record)
  return sort.startsWith('-') ? sorted.reverse() : sorted
}

function inOrder (one: unknown, other: unknown) {
  if (one === undefined || other === undefined) return Number(one !== undefined) - Number(other !== undefined)
  return typeof one === 'string'
    ? Buffer.compare(Buffer.from(one), Buffer.from(String(other)))
    : Number(one) - Number(other)
}
