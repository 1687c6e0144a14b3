import { Type, type TObject, type TSchema } from '@sinclair/typebox'
import { oneOf, PageQuery, safeBounds } from '../../schemas/fields.js'
import { accessOf } from '../schema/access.js'
import { pointer } from '../schema/walk.js'
import { fieldsOf } from '../stores/fields.js'
import { operators, parametersOf, type Operator } from '../stores/query.js'
import type { Definition } from './definition.js'

/** A parameter can be repeated so often. */
const maxValues = 100

const comparisons: Record<Exclude<Operator, 'in' | 'exists'>, string> = {
  gt: 'greater than this value', gte: 'at least this value', lt: 'less than this value', lte: 'at most this value', prefix: 'a text that begins with this one'
}

/** The query of a list whose records can be filtered by some fields, and compared and sorted by some of these. */
export function listQueryOf (schema: TObject, queried: readonly string[], filters: readonly string[]): TObject {
  if (queried.length === 0) return PageQuery
  const offered = [...parametersOf(fieldsOf(schema).filter(({ name }) => queried.includes(name)))].filter(([, { field, operator }]) => operator === 'in' || filters.includes(field.name))
  const parameters = offered.map(([name, { field, operator }]) => {
    const { type, values } = field
    const { format } = { ...schema.properties[field.name] }
    const value = { type, ...type === 'integer' && safeBounds, ...format !== undefined && { format } }
    if (operator === 'exists') return [name, Type.Boolean({ description: `Whether the record has ${field.name}` })]
    if (operator === 'in') return [name, { type: 'array', items: { ...value, ...values && { enum: values } }, maxItems: maxValues, description: `${field.name} is this value, or one of several` }]
    return [name, { ...operator === 'prefix' ? { type } : value, description: `${field.name} is ${comparisons[operator]}` }]
  })
  return Type.Object({
    ...PageQuery.properties,
    ...filters.length > 0 && {
      sort: Type.Optional(oneOf(filters.flatMap(name => [name, `-${name}`]), { description: 'Order by this field, with `-` in descending order; records with equal values are in order of creation' }))
    },
    total: Type.Optional(Type.Boolean({ description: 'Whether to count the records that match, for the header `X-Total-Count`' })),
    ...Object.fromEntries(parameters.map(([name, parameter]) => [name, Type.Optional(parameter as TSchema)]))
  }, { additionalProperties: false })
}

/** What is wrong with the filters, the unique fields and the references of a definition. */
export function problemsOfFilters (schema: TObject, { filters = [], unique = [], references = {} }: Definition) {
  const fields = new Map(fieldsOf(schema).map(field => [field.name, field]))
  const has = accessOf(schema)
  const taken = new Map([...Object.keys(PageQuery.properties), 'sort', 'total'].map(name => [name, '']))
  const listed = (option: string, names: readonly string[]) => names.map((name, n) => ({ name, path: `/${option}/${n}` }))
  const referring = Object.keys(references).map(name => ({ name, path: `/references${pointer(name)}` }))
  return [...listed('filters', filters), ...listed('unique', unique), ...referring].flatMap(({ name, path }) => {
    const field = fields.get(name)
    if (!field) return [{ path, message: `must be a field of the schema, and ${name} is not` }]
    if (!Object.hasOwn(operators, field.type)) return [{ path, message: `must be a field that is a string, an integer, a number or a boolean, and ${name} is not` }]
    if (Object.hasOwn(references, name) && field.type !== 'integer') return [{ path, message: 'must be an integer field, because ids are integers' }]
    if (has(schema.properties[name], 'writeOnly')) return [{ path, message: `must not be a writeOnly field, because clients could find out its values, and ${name} is one` }]
    const names = [...parametersOf([field]).keys()]
    const same = names.find(parameter => (taken.get(parameter) ?? name) !== name)
    for (const parameter of names) taken.set(parameter, name)
    return same ? [{ path, message: `has the parameter ${same}, which exists already` }] : []
  })
}
