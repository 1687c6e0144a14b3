import type { TObject } from '@sinclair/typebox'
import fastJson from 'fast-json-stringify'
import { fieldsOf } from './fields.js'

/** Gives the JSON of a record: the fields of its schema that it has, in their order, each as `JSON.stringify` writes it. */
export function encoderOf (schema: TObject): (record: object) => string {
  // What makes it write something else is left out: `required` changes the order, `default` and `format` the values.
  const properties = fieldsOf(schema).map(({ name, type }) => [name, type === 'json' ? {} : { type }])
  return fastJson({ type: 'object', properties: Object.fromEntries(properties) })
}
