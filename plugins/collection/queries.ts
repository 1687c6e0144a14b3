import { Type, type TObject, type TSchema } from '@sinclair/typebox'
import { oneOf, PageQuery, safeBounds } from '../../schemas/fields.js'
import { fieldsOf } from '../stores/fields.js'
import { operators, parametersOf, type Operator } from '../stores/query.js'

/** A parameter can be repeated so often. */
const maxValues = 100

const comparisons: Record<Exclude<Operator, 'in' | 'exists'>, string> = {
  gt: 'greater than this value', gte: 'at least this value', lt: 'less than this value', lte: 'at most this value', prefix: 'a text that begins with this one'
}

/** The query of a list whose records can be filtered and sorted by some fields. */
export function listQueryOf (schema: TObject, filters: readonly string[]): TObject {
  if (filters.length === 0) return PageQuery
  const parameters = [...parametersOf(filterFieldsOf(schema, filters))].map(([name, { field, operator }]) => {
    const { type, values } = field
    const value = { type, ...type === 'integer' && safeBounds, ...formatOf(schema.properties[field.name]) }
    if (operator === 'exists') return [name, Type.Boolean({ description: `Whether the record has ${field.name}` })]
    if (operator === 'in') return [name, { type: 'array', items: { ...value, ...values && { enum: values } }, maxItems: maxValues, description: `${field.name} is this value, or one of several` }]
    return [name, { ...operator === 'prefix' ? { type } : value, description: `${field.name} is ${comparisons[operator]}` }]
  })
  return Type.Object({
    ...PageQuery.properties,
    sort: Type.Optional(oneOf(filters.flatMap(name => [name, `-${name}`]), { description: 'Order by this field, with `-` in descending order; records with equal values are in order of creation' })),
    total: Type.Optional(Type.Boolean({ description: 'Whether to count the records that match, for the header `X-Total-Count`' })),
    ...Object.fromEntries(parameters.map(([name, parameter]) => [name, Type.Optional(parameter as TSchema)]))
  }, { additionalProperties: false })
}

export const totalHeader = { 'X-Total-Count': Type.Integer({ description: 'Number of records that match, with `total=true`' }) }

/** The fields that can be filtered and sorted by. */
function filterFieldsOf (schema: TObject, filters: readonly string[]) {
  return fieldsOf(schema).filter(({ name }) => filters.includes(name))
}

/** What is wrong with the filters of a definition. */
export function problemsOfFilters (schema: TObject, filters: readonly string[]) {
  const fields = new Map(fieldsOf(schema).map(field => [field.name, field]))
  const taken = new Set([...Object.keys(PageQuery.properties), 'sort', 'total'])
  return filters.flatMap((name, n) => {
    const field = fields.get(name)
    const path = `/filters/${n}`
    if (!field) return [{ path, message: `must be a field of the schema, and ${name} is not` }]
    if (!Object.hasOwn(operators, field.type)) return [{ path, message: `must be a field that is a string, an integer, a number or a boolean, and ${name} is not` }]
    const names = [...parametersOf([field]).keys()]
    const same = names.find(name => taken.has(name))
    for (const name of names) taken.add(name)
    return same ? [{ path, message: `has the parameter ${same}, which exists already` }] : []
  })
}

function formatOf (schema?: TSchema) {
  const { format } = Object(schema)
  return format === undefined ? {} : { format }
}
