import { Type, type SchemaOptions, type TObject } from '@sinclair/typebox'
import { idOf, nameOf } from './component.js'

/** The id of a record. Beyond these bounds, programs may read different numbers (RFC 7493). */
export const Id = Type.Integer({
  format: 'int64',
  minimum: Number.MIN_SAFE_INTEGER,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'Integer from -(2^53 - 1) to 2^53 - 1'
})

/** An id in a path. It has no bounds: an id that no record can have is simply not found. */
export const PathId = Type.Integer({ format: 'int64', description: 'Id of the record', examples: [1] })

/** A string in a record. */
export const Text = Type.String({ description: 'Well-formed Unicode text' })

/** One of these strings. A union of literals would make the document and the error messages longer. */
export function oneOf<const T extends readonly string[]> (values: T, options: SchemaOptions = {}) {
  return Type.Unsafe<T[number]>({ ...options, type: 'string', enum: values })
}

/** The schema of a new record if the service generates the id. */
export function withoutId<T extends TObject> (schema: T) {
  const { id, ...example } = schema.examples[0]
  return Type.Omit(schema, ['id'], { $id: idOf(`New${nameOf(schema.$id)}`), description: schema.description, examples: [example] })
}
