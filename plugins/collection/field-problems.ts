import { Type, type TObject, type TSchema } from '@sinclair/typebox'
import { accessOf, defaultAdder } from '../schema/access.js'
import { checkerOf } from '../schema/validation.js'
import { pointer, schemasIn } from '../schema/walk.js'

/** Names of columns that PostgreSQL or our statements use, and names that @fastify/swagger takes for keywords. */
const reservedFields = ['$id', '$ref', 'position', 'xmin', 'xmax', 'cmin', 'cmax', 'ctid', 'tableoid', '_key', '_digest', '_place', '_no_id']

/** Problems of field names, and of keywords and types that Ajv does not know. */
export function problemsOfFields (schema: TObject) {
  const names = Object.keys(schema.properties)
  const seen = new Set([...reservedFields, ''])
  const invalidNames = names.filter(name => {
    const isUnique = seen.size < seen.add(name.toLowerCase()).size
    return !isUnique || name in Object.prototype || name.includes('\0') || Buffer.byteLength(name) > 63
  })
  const problems = invalidNames.map(name => ({ path: `/schema/properties${pointer(name)}`, message: 'cannot be stored: its name is reserved, too long, or not unique without its case' }))
  try {
    checkerOf(schema)
  } catch (error) {
    problems.push({ path: '/schema', message: `is not valid: ${(error as Error).message}` })
  }
  return problems.length > 0 ? problems : [...problemsOfAccess(schema), ...problemsOfDefaults(schema)]
}

/** Only fields can be hidden or kept, with all that they contain. */
function problemsOfAccess (schema: TObject) {
  const has = accessOf(schema)
  return schemasIn(schema, '/schema').flatMap(({ schema: part, path }) => (['readOnly', 'writeOnly'] as const)
    .filter(keyword => !has(part, keyword) && [part.prefixItems, part.items, part.contains, part.unevaluatedItems].flat().some(item => has(item, keyword)))
    .map(keyword => ({ path, message: `must not have ${keyword} items, because only fields can be ${keyword}` })))
}

/** The defaults of an empty object have at most so many characters. */
const maxDefaults = 64 * 1024

/** Defaults that are not valid, or that have no end. Those that are objects have defaults for their fields, and a hook can complete them. */
function problemsOfDefaults (schema: TObject) {
  const { $defs, definitions } = schema
  const addDefaults = defaultAdder(schema)
  const parts = schemasIn({ ...schema, default: undefined }, '/schema')
  const endless = parts.find(({ schema: part }) => {
    try {
      addDefaults?.([part.properties && structuredClone(part.default ?? {})], maxDefaults, part)
      return false
    } catch {
      return true
    }
  })
  if (endless) return [{ path: endless.path, message: `must not add more than ${maxDefaults} characters to an empty object with its defaults` }] // others contain it
  const given = parts.filter(({ schema: part }) => part.default !== undefined && Object(part.default) !== part.default)
  const properties = given.map(({ schema: part }, n): [number, TSchema] => [n, part])
  return problemsIn(Type.Object(Object.fromEntries(properties), { $defs, definitions }), { ...given.map(({ schema: part }) => part.default) })
    .map(({ path, message }) => ({ path: `${given[Number(path.slice(1))]?.path}/default`, message }))
}

/** The problems of a value. A schema that refers to another one outside of it, as that of a host can, is not checked. */
function problemsIn (schema: TSchema, value: unknown) {
  try {
    return checkerOf(schema)(value) ?? []
  } catch {
    return []
  }
}
