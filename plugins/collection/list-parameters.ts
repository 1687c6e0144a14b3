import { Type, type TObject, type TProperties, type TSchema } from '@sinclair/typebox'
import { oneOf, PageQuery, safeBounds } from '../../schemas/fields.js'
import { fieldsOf, type Field } from '../stores/indexed-fields.js'
import { parametersOf, type Operator } from '../stores/query-plan.js'
import { periodsOf } from '../stores/summary.js'
import type { CheckedDefinition } from '../definition/definition.js'

/** A parameter can be repeated so often. */
const maxValues = 100

const comparisons: Record<Exclude<Operator, 'in' | 'exists'>, string> = {
  gt: 'greater than this value',
  gte: 'at least this value',
  lt: 'less than this value',
  lte: 'at most this value',
  prefix: 'a text that begins with this one'
}

/** The query of a list: a page, conditions, an order, and related records. */
export function listQueryOf (definition: CheckedDefinition): TObject {
  if (definition.ignoreUnknownParameters) return PageQuery
  const sortable = ['id', ...definition.filters.filter(name => name !== 'id')]
  const sort = Type.Optional(oneOf(sortable.flatMap(name => [name, `-${name}`]), {
    description: 'Order by this field, with `-` in descending order; records with equal values are in order of ' +
      'creation, and with `-` the newest first'
  }))
  const total = Type.Optional(Type.Boolean({
    description: 'Whether to count the records that match, for the header `X-Total-Count`'
  }))
  const all = { ...PageQuery.properties, sort, total, ...expandOf(definition), ...conditionsOf(definition) }
  return Type.Object(all, { additionalProperties: false })
}

/** The query of a record: related records. */
export function recordQueryOf (definition: CheckedDefinition): TObject {
  return Type.Object(expandOf(definition), { additionalProperties: false })
}

function expandOf ({ references }: CheckedDefinition): TProperties {
  const names = Object.keys(references)
  if (names.length === 0) return {}
  const name = `(${names.map(name => name.replaceAll(/\W/g, '\\$&')).join('|')})`
  return {
    expand: Type.Optional(Type.String({
      pattern: `^${name}(,${name})*$`,
      expected: `references separated by commas, of ${names.join(', ')}`,
      description: `Adds related records as \`expand\`: references separated by commas, of ${names.join(', ')}; ` +
        'a list needs `limit` with it'
    }))
  }
}

/** The query of a summary: what it computes, and conditions. */
export function summaryQueryOf (definition: CheckedDefinition): TObject {
  const fields = fieldsOf(definition.schema).filter(({ name }) => definition.filters.includes(name))
  const names = fields.map(({ name }) => name)
  const integers = fields.filter(({ type }) => type === 'integer').map(({ name }) => name)
  const some = (values: string[], description: string) =>
    Type.Optional(Type.Array(oneOf(values), { maxItems: maxValues, uniqueItems: true, description }))
  const ofFields = {
    ...integers.length > 0 && { sum: some(integers, 'Integer fields whose values are added') },
    min: some(names, 'Fields whose least values are returned'),
    max: some(names, 'Fields whose greatest values are returned'),
    group: Type.Optional(oneOf(fields.flatMap(field => [field.name, ...periodsOf(field)]), {
      description: 'One result for each value of this field, or for each day, month or year of a date'
    }))
  }
  return Type.Object({
    count: Type.Optional(Type.Boolean({ description: 'Whether to count the records; true if there is nothing else' })),
    ...fields.length > 0 && ofFields,
    ...conditionsOf(definition)
  }, { additionalProperties: false })
}

function conditionsOf ({ schema, queried, filters }: CheckedDefinition) {
  const fields = fieldsOf(schema).filter(({ name }) => name === 'id' || queried.includes(name))
  return Object.fromEntries(Array.from(parametersOf(fields))
    .filter(([, { field: { name }, operator }]) => operator === 'in' || filters.includes(name) || name === 'id')
    .map(([name, { field, operator }]) => [name, Type.Optional(parameterOf(schema, field, operator))]))
}

/** The parameter for an operator of a field. */
function parameterOf (schema: TObject, { name, type, values }: Field, operator: Operator): TSchema {
  if (operator === 'exists') return Type.Boolean({ description: `Whether the record has ${name}` })
  if (operator === 'prefix') return Type.String({ description: `${name} is ${comparisons.prefix}` })
  const format = schema.properties[name]?.format
  const value = { type, ...type === 'integer' && safeBounds, ...format && { format } }
  if (operator !== 'in') return Type.Unsafe({ ...value, description: `${name} is ${comparisons[operator]}` })
  return Type.Array(Type.Unsafe({ ...value, ...values && { enum: values } }), {
    maxItems: maxValues,
    description: `${name} is this value, or one of several`
  })
}
