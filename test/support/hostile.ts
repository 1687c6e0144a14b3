const texts = (length: number) => Array.from({ length }, (_, n) => ({ type: 'string', const: `x${n}` }))
const access = { properties: { a: { default: 'x'.repeat(100) } }, patternProperties: { '^k1': { allOf: [{ writeOnly: true }] } }, additionalProperties: { readOnly: true } }
export const hostileDefs = {
  chain: { $ref: '#/$defs/link' },
  link: { type: 'object', required: ['a', 'b', 'c'] },
  'a"b': { type: 'object', required: ['a'], properties: { a: { $ref: '#/$defs/one' } } },
  one: { oneOf: [...texts(19), { type: 'object', required: ['kind'] }] },
  tree: { anyOf: [...texts(9), { type: 'array', items: { $ref: '#/$defs/tree' } }] },
  set: { type: 'array', uniqueItems: true, items: { $ref: '#/$defs/set' } },
  map: { type: 'object', additionalProperties: { $ref: '#/$defs/map' }, minProperties: 1 },
  sealed: { type: 'object', anyOf: texts(3).map(({ const: name }) => ({ properties: { [name]: { type: 'integer' } }, required: [name] })), unevaluatedProperties: false }
}

/** Schemas of a field that made some bodies expensive, by the name of their collection. */
export const hostileFields: Record<string, object> = {
  references: { type: 'array', items: { $ref: '#/$defs/chain' } },
  quotes: { type: 'array', items: { $ref: '#/$defs/a"b' } },
  required: { type: 'array', items: { type: 'object', required: ['a', 'b', 'c'] } },
  unions: { type: 'array', items: { oneOf: [...texts(19), { type: 'object', required: ['kind'] }] } },
  loose_unions: { type: 'array', items: { anyOf: [...texts(19), { type: ['object', 'array', 'integer'] }] } },
  choices: { type: 'array', items: { type: 'string', enum: Array.from({ length: 1000 }, (_, n) => `choice ${n}`) } },
  trees: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'array', items: { $ref: '#/$defs/tree' } }] },
  loose_trees: { type: 'array', items: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'array' }] } },
  sets: { $ref: '#/$defs/set' },
  maps: { $ref: '#/$defs/map' },
  nested_maps: { type: 'object', additionalProperties: { type: 'object', additionalProperties: { anyOf: [{ $ref: '#/$defs/link' }, { type: 'integer' }] } } },
  patterns: { type: 'object', patternProperties: { '^k': { type: 'object', anyOf: [{ required: ['a'] }, { required: ['b'] }] } } },
  names: { type: 'object', propertyNames: { maxLength: 3 }, additionalProperties: { type: 'integer' } },
  found: { type: 'array', contains: { type: 'object', required: ['a'], properties: { a: { $ref: '#/$defs/one' } } } },
  sealed: { type: 'array', items: { $ref: '#/$defs/sealed' } },
  inherited: { type: 'array', items: { type: 'object', properties: { constructor: { type: 'integer' }, toString: { type: 'string' } } } },
  conditions: { type: 'array', items: { if: { type: 'object', required: ['kind'] }, then: { required: ['a'] }, else: { type: 'integer', multipleOf: 0.1 } } },
  distinct: { type: 'array', uniqueItems: true },
  access: { type: ['array', 'object'], ...access, items: { type: ['array', 'object', 'integer'], ...access } },
  free: {},
  strict: { type: 'array', items: { type: 'object', additionalProperties: false, properties: Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`field${n}`, { type: 'integer', readOnly: n === 1 }])) } }
}

/** Definitions of collections with a field `value`. */
export const hostileCollections = Object.fromEntries(Object.entries(hostileFields).map(([name, value]) =>
  [name, { schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, value }, $defs: hostileDefs } }]))

/** Values in JSON of about this many bytes. */
export const hostileValues: Record<string, (size: number) => string> = {
  objects: size => list('{}', size),
  integers: size => list('1', size),
  kinds: size => list('{"kind":1}', size),
  'objects, then an integer': size => `[${'{"kind":1},'.repeat(size / 11)}1]`,
  'integers, then an object': size => `[${'1,'.repeat(size / 2)}{}]`,
  'complete objects': size => list('{"a":{"kind":1},"b":1,"c":1,"x1":1}', size),
  'different pairs': size => listOf(size / 30, n => `[${2 * n},[${2 * n + 1},{"a":${n}}]]`),
  'integers with equal hashes': size => `[${equalHashes().slice(0, size / 9)}]`,
  'the last choice': size => list('"choice 999"', size),
  texts: size => list('"x"', size),
  'deep arrays': size => list('['.repeat(90) + ']'.repeat(90), size),
  'deep arrays with an integer': size => list(`${'['.repeat(90)}1${']'.repeat(90)}`, size),
  'different deep arrays': size => listOf(Math.max(1, size / 190), n => `${'['.repeat(90)}${n}${']'.repeat(90)}`),
  'one deep object': size => `${'{"a":'.repeat(90)}{}${'}'.repeat(90)}`.padEnd(Math.min(size, 3000)),
  'arrays with an integer each': size => `${'[1,'.repeat(90)}${list('2', size / 2)}${']'.repeat(90)}`,
  'a long name': size => `{"${'k'.repeat(size / 2)}":${list('{}', size / 2)}}`,
  'a long name above many': size => `{"${'k'.repeat(size / 2)}":{${names(size / 2, '1')}}}`,
  'a name of 1 kB above many': size => `{"${'k'.repeat(1000)}":{${names(size, '1')}}}`,
  names: size => `{${names(size, '{}')}}`,
  'long names': size => `{${Array.from({ length: size / 1000 }, (_, n) => `"${String(n).padEnd(900, '~/')}":{}`).join(',')}}`,
  'a large number': () => '[1e400]'
}

/** A body of 1 MB can have so many arrays and objects. */
const maxParts = 100_000

/** As many values as a body of this size can have. The rest of the size is white space. */
function list (value: string, size: number) {
  return listOf(Math.max(1, Math.floor(size / (value.length + 1))), () => value).padEnd(size)
}

function listOf (length: number, value: (n: number) => string) {
  const parts = value(0).split(/[[{]/).length - 1
  return `[${Array.from({ length: Math.min(length, maxParts / parts) }, (_, n) => value(n)).join(',')}]`
}

let integers: number[] | undefined

/** Integers that V8 stores in the same bucket of a small `Map` or `Set`, because their hashes are not secret. */
export function equalHashes () {
  for (let n = 0; !integers || integers.length < 12_000; n++) {
    let hash = ~n + (n << 15)
    hash ^= hash >>> 12
    hash += hash << 2
    hash ^= hash >>> 4
    hash = Math.imul(hash, 2057)
    if (((hash ^ hash >>> 16) & 0x1fff) === 0) (integers ??= []).push(n)
  }
  return integers
}

function names (size: number, value: string) {
  return Array.from({ length: size / 12 }, (_, n) => `"k${n}":${value}`).join(',')
}
