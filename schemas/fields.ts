import { Type, type SchemaOptions, type Static, type TSchema } from '@sinclair/typebox'

const namespace = 'ItemsUsers.'

/** The `$id` of one of our schemas, which no schema of a host has. */
export function schemaId (name: string) {
  return namespace + name
}

/** The name of one of our schemas in the OpenAPI document. */
export function schemaName ($id = '') {
  return $id.startsWith(namespace) ? $id.slice(namespace.length) : $id
}

/** References a schema by its `$id`, so that the document has a named component, and keeps its static type. */
export function ref<T extends TSchema> (schema: T, options: SchemaOptions = {}) {
  return Type.Unsafe<Static<T>>(Type.Ref(String(schema.$id), options))
}

/** The bounds of an integer. Beyond them, programs may read different numbers (RFC 7493). */
export const safeBounds = { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER }

export const Id = Type.Integer({ format: 'int64', ...safeBounds, description: 'Integer from -(2^53 - 1) to 2^53 - 1' })

/** An id in a path. It has no bounds: an id that no record can have is simply not found. */
export const PathId = Type.Integer({ format: 'int64', description: 'Id of the record', examples: [1] })

/** A text as an id. Paths cannot have the others, and `summary` is the path of an operation. */
export const TextId = Type.String({
  minLength: 1,
  maxLength: 255,
  pattern: '^(?!(\\.|\\.\\.|summary)$)[^/]*$',
  expected: 'a text without / that is not ., .. or summary',
  description: 'Text of 1 to 255 characters without /'
})

export const PathTextId = Type.String({ description: 'Id of the record' })

/** When the service has created or changed a record. */
export const Time = Type.String({ format: 'date-time', readOnly: true, description: 'Time in UTC, set by the service' })

export const Text = Type.String({ description: 'Well-formed Unicode text' })

/** One of these strings. A union of literals would make the document and the error messages longer. */
export function oneOf<const T extends readonly string[]> (values: T, options: SchemaOptions = {}) {
  return Type.Unsafe<T[number]>({ ...options, type: 'string', enum: values })
}

/** The query of a list. Without a limit, the response is the whole list. */
export const PageQuery = Type.Object({
  limit: Type.Optional(Type.Integer({
    minimum: 1,
    maximum: 1000,
    description: 'Maximum number of records on the page; without it, all records are returned',
    // Swagger UI fills it in, because it shows a long list slowly.
    examples: [100]
  })),
  after: Type.Optional(Type.String({ description: 'Cursor from the `Link` header of the previous page' }))
})
