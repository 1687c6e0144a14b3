import { Type, type SchemaOptions, type Static, type TSchema } from '@sinclair/typebox'

/** The `$id` of a schema of ours, which no schema of a host has, and the name that our document gives it. */
export const idOf = (name: string) => `ItemsUsers.${name}`
export const nameOf = ($id = '') => $id.replace(idOf(''), '')

/** Refers to a schema by its `$id`: a named component in the document, and still its static type to the compiler. */
export function ref<T extends TSchema> (schema: T, options: SchemaOptions = {}) {
  return Type.Unsafe<Static<T>>(Type.Ref(String(schema.$id), options))
}
