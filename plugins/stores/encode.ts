import type { TObject } from '@sinclair/typebox'
import fastJson from 'fast-json-stringify'
import { fieldsOf } from './fields.js'

/** Returns a function that encodes a record as JSON: the fields of its schema, in order, as `JSON.stringify` writes them. */
export function encoderOf (schema: TObject): (record: object) => string {
  // Only the types are passed on: with `required` fast-json-stringify changes the order, with `default` and `format` the values.
  const properties = fieldsOf(schema).map(({ name, type }) => [name, type === 'json' ? {} : { type }])
  return fastJson({ type: 'object', properties: Object.fromEntries(properties) })
}
