import type { TObject } from '@sinclair/typebox'

/** Gives the JSON of a record: the fields of its schema, in their order. */
export function encoderOf<T> ({ properties }: TObject) {
  const fields = Object.keys(properties) as (keyof T)[]
  const keys = fields.map((field, n) => `${n === 0 ? '{' : ','}${JSON.stringify(field)}:`)

  return function encode (record: T) {
    return fields.reduce((json, field, n) => json + keys[n] + JSON.stringify(record[field]), '') + '}'
  }
}
