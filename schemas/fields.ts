import { Type, type SchemaOptions, type TObject } from '@sinclair/typebox'
import { idOf, nameOf } from './component.js'

/** An id as a record holds it. Beyond these bounds, two programs may read two numbers (RFC 7493). */
export const Id = Type.Integer({
  minimum: Number.MIN_SAFE_INTEGER,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'Any integer that JSON carries exactly'
})

/** An id in a path. It has no bounds, since an id that no record can have is not found. */
export const PathId = Type.Integer({ description: 'The id to look for', examples: [1] })

/** A string as a record holds it. A lone surrogate has no UTF-8 form, so it could not be given back. */
export const Text = Type.String({
  pattern: '^[^\\uD800-\\uDFFF]*$',
  description: 'well-formed Unicode text'
})

/** One of these strings. A union of literals would say the same at length, in the document and in each error. */
export function oneOf<const T extends readonly string[]> (values: T, options: SchemaOptions = {}) {
  return Type.Unsafe<T[number]>({ ...options, type: 'string', enum: values })
}

/** What a client sends of a record if the service generates the id. */
export function withoutId<T extends TObject> (schema: T) {
  const { id, ...example } = schema.examples[0]
  return Type.Omit(schema, ['id'], { $id: idOf(`New${nameOf(schema.$id)}`), description: schema.description, examples: [example] })
}
