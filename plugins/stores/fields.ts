import type { TObject, TSchema } from '@sinclair/typebox'

/** The types of fields that can have an index; a field of another type is `json`. */
export type FieldType = 'integer' | 'number' | 'string' | 'boolean' | 'json'

export interface Field {
  name: string
  type: FieldType
  isOptional: boolean
  /** The values that it can have, if its schema lists them. */
  values?: unknown[]
}

/** The fields of a record, in the order of its schema. */
export function fieldsOf (schema: TObject): Field[] {
  const { properties, required = [] } = schema
  const targets = targetsIn(schema)
  return Object.entries(properties).map(([name, schema]) => {
    const target = resolved(schema)
    const type = typeOf(target)
    const values = valuesOf(target)?.filter(value => isOfType(value, type))
    const isListed = type !== 'boolean' && values !== undefined && values.length > 0
    return { name, type, isOptional: !required.includes(name), ...isListed && { values } }
  })

  function resolved (schema: TSchema): TSchema {
    const target = targets.get(String(schema.$ref))
    return target ? resolved(target) : schema
  }
}

/** The schemas that a reference in a schema can have as its target. */
function targetsIn (schema: TSchema) {
  return new Map(['$defs', 'definitions'].flatMap(keyword =>
    Object.entries<TSchema>({ ...schema[keyword] })
      .map(([name, target]): [string, TSchema] => [`#/${keyword}/${name}`, target])))
}

function typeOf ({ type, anyOf = [], nullable }: TSchema): FieldType {
  if (nullable) return 'json' // a field with an index is absent if its column is null
  if (type === 'number' || type === 'string' || type === 'boolean' || type === 'integer') return type
  const [common = 'json', ...others] = new Set<FieldType>(anyOf.map(typeOf))
  return others.length === 0 ? common : 'json'
}

/** Whether a value can be in the column of a field. */
export function isOfType (value: unknown, type: FieldType) {
  const own = Number.isInteger(value) ? 'integer' : typeof value
  return own === type || (own === 'integer' && type === 'number')
}

/** The values of an enumeration: `enum`, `const`, or a union of these. */
function valuesOf (schema: TSchema): unknown[] | undefined {
  if (schema.const !== undefined) return [schema.const]
  if (schema.enum) return schema.enum
  const values = schema.anyOf?.map(valuesOf)
  return values?.includes(undefined) ? undefined : values?.flat()
}
