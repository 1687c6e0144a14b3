import fc from 'fast-check'
import { character } from './text.js'

/** A JSON Schema, and values that it accepts. */
interface Generated {
  schema: object | boolean
  values: fc.Arbitrary<unknown>
}

const text = fc.string({ unit: character, maxLength: 5 }).filter(text => !text.includes('\0'))

/** Schemas for texts that `$ref` can refer to. */
const definitions = {
  short: { type: 'string', maxLength: 5 },
  colour: { enum: ['red', 'green'] },
  list: { type: 'array', items: { $ref: '#/$defs/list' } }
}

const { value: generated } = fc.letrec<{ value: Generated, tree: unknown }>(tie => ({
  tree: fc.oneof({ depthSize: 'small' }, fc.constant([]), fc.array(tie('tree'), { maxLength: 2 })),
  value: fc.oneof({ depthSize: 'small' },
    fc.tuple(fc.nat(2), fc.integer({ min: 3, max: 6 }))
      .map(([minLength, maxLength]) =>
        of({ type: 'string', minLength, maxLength }, fc.string({ minLength, maxLength: 6 }))),
    fc.integer({ min: -9, max: 9 }).map(minimum =>
      of({ type: 'integer', minimum, maximum: minimum + 5 }, fc.integer({ min: minimum, max: minimum + 6 }))),
    fc.constantFrom(
      of({ type: 'string', pattern: '^[a-f]{1,3}$' }, fc.stringMatching(/^[a-f]{1,3}$/)),
      of({ type: 'string', format: 'date' }, fc.constantFrom('2024-02-29', '2026-11-17')),
      of({ type: 'string', enum: ["it's", '', '"'] }, fc.constantFrom("it's", '', '"')),
      of({ type: 'integer', multipleOf: 3 }, fc.integer({ min: -9, max: 9 }).map(n => n * 3)),
      of({ type: 'number', exclusiveMinimum: -1e300 }, fc.double({ min: -1e15, max: 1e15, noNaN: true })),
      of({ type: 'boolean' }, fc.boolean()),
      of({ type: ['string', 'null'] }, fc.option(text)),
      of({ const: { a: [1, null] } }, fc.constant({ a: [1, null] })),
      of({ $ref: '#/$defs/short' }, text),
      of({ $ref: '#/$defs/colour' }, fc.constantFrom('red', 'green')),
      of({ $ref: '#/$defs/list' }, tie('tree')),
      of({ anyOf: [{ $ref: '#/$defs/short' }, { type: 'integer' }] }, fc.oneof(text, fc.integer())),
      of({ not: { type: 'string' } }, fc.constantFrom(null, 1, [], {})),
      of(true, fc.constantFrom(null, 1, 'x', [1], { a: 1 }))
    ),
    fc.tuple(tie('value'), fc.nat(2), fc.boolean()).map(([{ schema, values }, minItems, uniqueItems]) =>
      of({ type: 'array', items: schema, minItems, maxItems: 3, uniqueItems },
        fc.array(values, { minLength: minItems, maxLength: 3 }))),
    fc.tuple(tie('value'),
      tie('value')).map(([one, other]) =>
      of({ oneOf: [one.schema, other.schema] }, fc.oneof(one.values, other.values))),
    tie('value').map(({ schema, values }) =>
      of({ if: { type: 'integer' }, then: schema, else: { type: 'string' } }, fc.oneof(values, text))),
    fc.tuple(tie('value'), tie('value'), fc.boolean()).map(([one, other, isOpen]) => of(
      {
        type: 'object',
        properties: { a: one.schema, 'b/c': other.schema },
        required: ['a'],
        patternProperties: { '^x': { type: 'integer' } },
        additionalProperties: isOpen
      },
      fc.record({ a: one.values, 'b/c': other.values, x: fc.integer() }, { requiredKeys: ['a'] })))
  )
}))

function of (schema: object | boolean, values: fc.Arbitrary<unknown>): Generated {
  return { schema, values }
}

/** Names that are unusual in SQL, in JSON or in JavaScript. */
const names = [
  'select', "it's", 'a"b', 'a/b', 'ünïcode', 'with space', '0', 'order', 'changes', 'key', '日本', '"id"', '日'.repeat(19)
]

/** Names of collections that are unusual in SQL. */
export const collectionNames = [
  'order', 'select', 'changes', 'key', 'sqlite', 'orders', 'orders_pkey', 'orders_by_id', 'a'.repeat(48)
]

/** Schemas of records, each with records of which it accepts some. */
export const recordSchemas = fc.uniqueArray(fc.tuple(fc.constantFrom(...names), generated, fc.boolean()),
  { selector: ([name]) => name, minLength: 1, maxLength: 4 }).map(fields => {
  const required = fields.filter(([,, isRequired]) => isRequired).map(([name]) => name)
  const schema = {
    type: 'object',
    required: ['id', ...required],
    properties: Object.fromEntries([
      ...fields.map(([name, { schema }]) => [name, schema] as const), ['id', { type: 'integer' }] as const
    ]),
    $defs: definitions
  }
  const valid = fc.record(Object.fromEntries(fields.map(([name, { values }]) => [name, values])),
    { requiredKeys: required })
  const other = fc.constantFrom<unknown>(undefined, null, true, '', 'xxxxxxxxx', 1.5, -1e6, [], {}, [1, [1], 'x'],
    { a: null, z: 1 })
  const changed = fc.tuple(valid, fc.constantFrom(...fields.map(([name]) => name)), other)
    .map(([record, name, value]) => ({ ...record, [name]: value }))
  return { schema, records: fc.oneof(valid, changed) }
})
