import { Type, type SchemaOptions, type Static, type TSchema } from '@sinclair/typebox'

/** The `$id` of one of our schemas, which no schema of a host has. */
export const idOf = (name: string) => `ItemsUsers.${name}`
/** The name of one of our schemas in the OpenAPI document. */
export const nameOf = ($id = '') => $id.replace(idOf(''), '')

/** References a schema by its `$id`, so that the document has a named component, and keeps its static type. */
export function ref<T extends TSchema> (schema: T, options: SchemaOptions = {}) {
  return Type.Unsafe<Static<T>>(Type.Ref(String(schema.$id), options))
}
