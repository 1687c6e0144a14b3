import type { TObject, TSchema } from '@sinclair/typebox'

/** The types of fields that can have an index. */
export type FieldType = 'integer' | 'number' | 'string' | 'boolean'

export interface Field {
  name: string
  /** Its type, if it can have an index. */
  type: FieldType | undefined
  /** Whether a record can be without it, or have null. */
  isOptional: boolean
  /** Whether its values are dates. */
  isDate: boolean
  /** Whether its values are compared as times. */
  isTime: boolean
  /** The values that it can have, if its schema lists them. */
  values?: unknown[] | undefined
}

/** The fields of a record, in the order of its schema. */
export function fieldsOf (schema: TObject): Field[] {
  const { properties, required = [] } = schema
  const targets = new Map(['$defs', 'definitions'].flatMap(keyword => {
    const named = Object.entries<TSchema>({ ...schema[keyword] })
    return named.map(([name, target]): [string, TSchema] => [`#/${keyword}/${name}`, target])
  }))

  return Object.entries(properties).map(([name, property]) => {
    const alternatives = alternativesOf(property)
    const types = new Set(alternatives.flatMap(typesOf))
    const isNullable = types.delete('null')
    if (types.has('number')) types.delete('integer')
    const [type] = types.size === 1 ? types : []
    return {
      name,
      type: isFieldType(type) ? type : undefined,
      isOptional: isNullable || !required.includes(name),
      isDate: alternatives.some(({ format }) => format === 'date'),
      isTime: alternatives.some(({ format }) => format === 'date-time'),
      values: valuesOf(alternatives)
    }
  })

  /** The schemas that a value can match, without references and unions. */
  function alternativesOf (part: TSchema): TSchema[] {
    const target = targets.get(String(part.$ref))
    if (target) return alternativesOf(target)
    const union: TSchema[] | undefined = part.anyOf ?? part.oneOf
    return union ? union.flatMap(alternativesOf) : [part]
  }
}

/** The types of the values of a schema; `any` if it does not say. */
function typesOf ({ type, const: value, enum: values = [value], nullable }: TSchema): string[] {
  const types = type ? [type].flat() : values.map(typeOf)
  return nullable ? [...types, 'null'] : types
}

function typeOf (value: unknown) {
  if (value === null) return 'null'
  if (value === undefined) return 'any'
  return Number.isInteger(value) ? 'integer' : typeof value
}

function isFieldType (type = ''): type is FieldType {
  return ['integer', 'number', 'string', 'boolean'].includes(type)
}

/** The values of an enumeration, except null and booleans. */
function valuesOf (alternatives: TSchema[]) {
  const values = alternatives.flatMap(({ type, const: value, enum: values }) => {
    if (values) return values
    return type === 'null' ? [] : value
  })
  const isListed = values.length > 0 && values.every(value => value !== undefined && typeof value !== 'boolean')
  return isListed ? values.filter(value => value !== null) : undefined
}

/** Whether a value can be in the column of a field. */
export function isOfType (value: unknown, type: FieldType | undefined) {
  const own = Number.isInteger(value) ? 'integer' : typeof value
  return own === type || (own === 'integer' && type === 'number')
}
