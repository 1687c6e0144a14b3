import type { TObject, TSchema } from '@sinclair/typebox'
import { mapSchema, targetsIn } from './walk.js'

/** Returns a function that returns a record with only the fields in `properties`. */
export function knownFieldsOf ({ properties }: TObject) {
  const isKnown = (name: string) => Object.hasOwn(properties, name)
  return <T extends object>(record: T) =>
    Object.keys(record).every(isKnown) ? record : Object.fromEntries(Object.entries(record).filter(([name]) => isKnown(name))) as T
}

/**
 * Returns a function that removes the fields that `additionalProperties: false` forbids in nested objects, before they are
 * validated, as Fastify does by default. Those in `anyOf` and the like are left to the validator, because they tell variants apart.
 */
export function nestedFieldsRemover (record: TObject) {
  const targets = targetsIn(record)
  let isStrict = false
  mapSchema(record, (schema, path) => {
    isStrict ||= path !== '' && schema.additionalProperties === false
    return schema
  })
  return (value: unknown) => { if (isStrict) removeIn(value, { ...record, additionalProperties: true }) }

  function removeIn (value: unknown, schema?: TSchema | boolean) {
    const { $ref, items, prefixItems = [], properties = {}, patternProperties = {}, additionalProperties }: TSchema = Object(schema)
    if (targets.has($ref)) removeIn(value, targets.get($ref))
    if (Array.isArray(value)) return value.forEach((item, n) => removeIn(item, prefixItems[n] ?? items))
    if (Object(value) !== value) return
    const object = value as Record<string, unknown>
    for (const name of Object.keys(object)) {
      const pattern = Object.keys(patternProperties).find(pattern => new RegExp(pattern, 'u').test(name))
      const field = Object.hasOwn(properties, name) ? properties[name] : pattern === undefined ? additionalProperties : patternProperties[pattern]
      if (field === false) delete object[name]
      else removeIn(object[name], field)
    }
  }
}
