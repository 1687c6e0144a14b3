import { Type, type TObject, type TSchema } from '@sinclair/typebox'
import { pointer } from '../../schemas/errors.js'
import { oneOf, PageQuery, safeBounds } from '../../schemas/fields.js'
import { fieldsOf, type Field } from '../stores/fields.js'
import { parametersOf, type Operator } from '../stores/query.js'
import type { Definition } from './definition.js'

/** A parameter can be repeated so often. */
const maxValues = 100

const comparisons: Record<Exclude<Operator, 'in' | 'exists'>, string> = {
  gt: 'greater than this value',
  gte: 'at least this value',
  lt: 'less than this value',
  lte: 'at most this value',
  prefix: 'a text that begins with this one'
}

/** The query of a list whose records can be filtered by some fields, and compared and sorted by some of these. */
export function listQueryOf (schema: TObject, queried: readonly string[], filters: readonly string[]): TObject {
  if (queried.length === 0) return PageQuery
  const fields = fieldsOf(schema).filter(({ name }) => queried.includes(name))
  const parameters = Array.from(parametersOf(fields))
    .filter(([, { field, operator }]) => operator === 'in' || filters.includes(field.name))
    .map(([name, { field, operator }]) => [name, Type.Optional(parameterOf(schema, field, operator))])
  const sort = Type.Optional(oneOf(filters.flatMap(name => [name, `-${name}`]), {
    description: 'Order by this field, with `-` in descending order; records with equal values are in order of creation'
  }))
  const total = Type.Optional(Type.Boolean({
    description: 'Whether to count the records that match, for the header `X-Total-Count`'
  }))
  return Type.Object({
    ...PageQuery.properties,
    ...filters.length > 0 && { sort },
    total,
    ...Object.fromEntries(parameters)
  }, { additionalProperties: false })
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

/** What is wrong with the filters, the unique fields and the references of a definition. */
export function problemsOfFilters (schema: TObject, { filters = [], unique = [], references = {} }: Definition) {
  const fields = new Map(fieldsOf(schema).map(field => [field.name, field]))
  const taken = new Map([...Object.keys(PageQuery.properties), 'sort', 'total'].map(name => [name, '']))
  const listed = (option: string, names: readonly string[]) =>
    names.map((name, n) => ({ name, path: `/${option}/${n}` }))
  const referring = Object.keys(references).map(name => ({ name, path: `/references${pointer(name)}` }))
  return [...listed('filters', filters), ...listed('unique', unique), ...referring].flatMap(({ name, path }) => {
    const message = problemOf(name)
    return message ? [{ path, message }] : []
  })

  function problemOf (name: string) {
    const field = fields.get(name)
    if (!field) return `must be a field of the schema, and ${name} is not`
    if (!field.type) {
      return `must be a field that is a string, an integer, a number or a boolean, and ${name} is not`
    }
    if (Object.hasOwn(references, name) && field.type !== 'integer') {
      return 'must be an integer field, because ids are integers'
    }
    const names = [...parametersOf([field]).keys()]
    const same = names.find(parameter => (taken.get(parameter) ?? name) !== name)
    for (const parameter of names) taken.set(parameter, name)
    return same && `has the parameter ${same}, which exists already`
  }
}
