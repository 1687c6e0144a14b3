const size = 1_000_000

/** Definitions of collections with a field `value`, whose schemas make some bodies expensive. */
export const hostileCollections = {
  free: collection({}),
  chains: collection({ type: 'array', items: { $ref: '#/$defs/chain' } }),
  unions: collection({ type: 'array', items: { oneOf: [...texts(19), { type: 'object', required: ['kind'] }] } }),
  trees: collection({ $ref: '#/$defs/tree' }),
  maps: collection({ $ref: '#/$defs/map' }),
  sealed: collection({ type: 'array', items: { type: 'object', properties: { a: {} }, unevaluatedProperties: false } }),
  records: collection({
    type: 'array',
    items: { type: 'object', additionalProperties: false, properties: { a: { type: 'string', default: 'x' } } }
  })
}

/** Bodies of about 1 MB. */
export const hostileBodies: Record<string, () => string> = {
  'arrays in arrays': () => '['.repeat(size / 2) + ']'.repeat(size / 2),
  'a value of arrays in arrays': () => bodyOf('['.repeat(size / 2 - 10) + ']'.repeat(size / 2 - 10)),
  'objects in objects': () => bodyOf(`${'{"a":'.repeat(size / 7)}1${'}'.repeat(size / 7)}`),
  'small objects': () => bodyOf(repeated('{}')),
  'small objects of one field': () => bodyOf(repeated('{"kind":1}')),
  'arrays of 90 levels': () => bodyOf(repeated('['.repeat(90) + ']'.repeat(90))),
  integers: () => bodyOf(repeated('1')),
  'a long text': () => bodyOf(`"${'x'.repeat(size)}"`),
  'texts that need escapes': () => bodyOf(repeated('"\\u0000\\ud83d"')),
  'a number of 1 MB': () => bodyOf('9'.repeat(size)),
  'numbers that are too large': () => bodyOf(repeated('1e999')),
  'many fields': () => `{${names(size / 20)}}`,
  'a map of many fields': () => bodyOf(`{${names(size / 20)}}`),
  'a long name above many': () => bodyOf(`{"${'k'.repeat(size / 2)}":{${names(size / 40)}}}`),
  'one field many times': () => `{${'"value":1,'.repeat(size / 10)}"value":2}`,
  'a dangerous key at the bottom': () => `${'{"x":'.repeat(size / 8)}{"__proto__":1}${'}'.repeat(size / 8)}`,
  'white space': () => ' '.repeat(size)
}

function collection (value: object) {
  const $defs = {
    chain: { $ref: '#/$defs/link' },
    link: { type: 'object', required: ['a', 'b', 'c'] },
    tree: { anyOf: [...texts(9), { type: 'array', items: { $ref: '#/$defs/tree' } }] },
    map: { type: 'object', additionalProperties: { $ref: '#/$defs/map' }, minProperties: 1 }
  }
  return { schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, value }, $defs } }
}

function texts (length: number) {
  return Array.from({ length }, (_, n) => ({ type: 'string', const: `x${n}` }))
}

function bodyOf (value: string) {
  return `{"value":${value}}`
}

function repeated (value: string) {
  return `[${Array(Math.floor(size / (value.length + 1))).fill(value).join(',')}]`
}

function names (count: number) {
  return Array.from({ length: count }, (_, n) => `"field${n}":{}`).join(',')
}
