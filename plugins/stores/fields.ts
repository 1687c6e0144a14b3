import type { TObject, TSchema } from '@sinclair/typebox'
import { StartupError } from './store.js'

/** How the values of a field are stored: with a type that JSON and SQL have in common, or as JSON text. */
export type FieldType = 'integer' | 'number' | 'string' | 'boolean' | 'json'

/** A field of a record. */
export interface Field {
  name: string
  type: FieldType
  isOptional: boolean
}

const jsonTypes = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']

/** The fields of a record, in the order of its schema. */
export function fieldsOf ({ properties, required = [] }: TObject): Field[] {
  return Object.entries(properties).map(([name, schema]) => {
    const foreign = foreignType(schema)
    if (foreign) throw new StartupError(`The field ${name} cannot be stored: ${foreign} is not a JSON type.`)
    return { name, type: typeOf(schema), isOptional: !required.includes(name) }
  })
}

function typeOf ({ type, anyOf = [], nullable, minimum, maximum }: TSchema): FieldType {
  if (nullable) return 'json' // SQL null means that the field is absent
  if (type === 'number' || type === 'string' || type === 'boolean') return type
  if (type === 'integer') return minimum >= Number.MIN_SAFE_INTEGER && maximum <= Number.MAX_SAFE_INTEGER ? type : 'number'
  const [common = 'json', ...others] = new Set<FieldType>(anyOf.map(typeOf))
  return others.length === 0 ? common : 'json'
}

/** The first type in a schema, also in nested ones, that JSON does not have. */
function foreignType (schema: TSchema): string | undefined {
  const { type = [], properties = {}, patternProperties = {}, additionalProperties, items, anyOf, allOf } = schema
  const foreign = [type].flat().find(name => !jsonTypes.includes(name))
  const nested = [Object.values(properties), Object.values(patternProperties), additionalProperties, items, anyOf, allOf].flat(2)
  return foreign ?? nested.filter(isSchema).map(foreignType).find(Boolean)
}

function isSchema (value: unknown): value is TSchema {
  return typeof value === 'object' && value !== null
}
