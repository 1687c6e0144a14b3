import { METHODS } from 'node:http'
import fc from 'fast-check'
import type { Sent } from '../support/curl.js'
import type { Document, Operation, Schema } from '../support/document.js'
import { character } from '../support/text.js'

/** Generates requests that the document describes, valid or almost valid, and others. */
export function requestsOf ({ paths, components }: Document): fc.Arbitrary<Sent> {
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })))

  const described = fc.constantFrom(...operations).chain(({ path, method, operation }) => {
    const { parameters = [], requestBody } = operation
    const of = (place: string) => parameters.filter(parameter => parameter.in === place)
    const schema = requestBody?.content['application/json'].schema
    return fc.record({
      method: fc.oneof({ weight: 9, arbitrary: fc.constant(method) }, { weight: 1, arbitrary: anyMethod }),
      target: fc.tuple(
        fc.tuple(...of('path').map(({ name, schema }) => textsFor(schema).map(text => [name, text] as const))),
        pairs(of('query'))
      ).map(([inPath, inQuery]) => {
        const fill = (path: string, [name, text]: readonly [string, string]) =>
          path.replace(`{${name}}`, encodeURIComponent(text))
        return `${inPath.reduce(fill, path)}?${new URLSearchParams(inQuery)}`.replace(/\?$/, '')
      }),
      headers: fc.tuple(pairs(of('header').filter(({ name }) => name === 'Idempotency-Key')), otherHeaders)
        .map(([known, other]) => {
          const allowed = known.filter(([, text]) => fieldValue.test(text))
          return { ...other, ...Object.fromEntries(allowed.map(([name, text]) => [name.toLowerCase(), text])) }
        }),
      body: schema ? bodiesFor(schema) : fc.constant(undefined)
    })
  })

  const undescribed = fc.record({
    method: anyMethod,
    target: fc.webPath().map(path => `/${path.replace(/^\/+/, '')}`),
    headers: otherHeaders,
    body: fc.constant(undefined)
  })

  return fc.oneof({ weight: 12, arbitrary: described }, { weight: 1, arbitrary: undescribed })

  /** Some of these parameters, rarely one of them twice. */
  function pairs (parameters: NonNullable<Operation['parameters']>) {
    if (parameters.length === 0) return fc.constant([])
    const pair = fc.constantFrom(...parameters)
      .chain(({ name, schema }) => textsFor(schema).map((text): [string, string] => [name, text]))
    return fc.array(pair, { maxLength: 2 })
  }

  /** Valid bodies, almost valid ones, any JSON, and text that is not JSON. */
  function bodiesFor (schema: Schema): fc.Arbitrary<Buffer> {
    const { properties = {} } = resolved(schema)
    const near = fc.record(Object.fromEntries(Object.entries(properties).map(([name, property]) => {
      const values = { weight: 4, arbitrary: valuesFor(property) }
      return [name, fc.oneof(values, { weight: 1, arbitrary: fc.jsonValue() }, { weight: 1, arbitrary: awkward })]
    })))
    return fc.oneof(
      { weight: 6, arbitrary: valuesFor(schema).map(value => JSON.stringify(value)) },
      { weight: 4, arbitrary: near.map(value => JSON.stringify(value)) },
      { weight: 1, arbitrary: fc.json() },
      { weight: 1, arbitrary: malformed }
    ).map(text => Buffer.from(text))
  }

  /** Values that the schema allows. Small integers are frequent, so that ids repeat. */
  function valuesFor (schema: Schema): fc.Arbitrary<unknown> {
    const { type, properties = {}, required = [], pattern, minimum = -Infinity, maximum = Infinity } = resolved(schema)
    if (type === 'object') {
      const values = Object.entries(properties).map(([name, property]) => [name, valuesFor(property)])
      return fc.record(Object.fromEntries(values), { requiredKeys: required as never[] })
    }
    if (type === 'integer') {
      const [min, max] = [Math.max(minimum, Number.MIN_SAFE_INTEGER), Math.min(maximum, Number.MAX_SAFE_INTEGER)]
      const small = fc.integer({ min: Math.max(min, -3), max: Math.min(max, 30) })
      return fc.oneof({ weight: 3, arbitrary: small }, { weight: 1, arbitrary: fc.integer({ min, max }) })
    }
    if (type === 'number') return fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer())
    if (type !== 'string') throw new Error(`The document has a type that this test does not know: ${type}`)
    const text = fc.string({ unit: character })
    if (pattern === undefined) return text
    const allowed = new RegExp(pattern, 'u')
    return fc.oneof(text, fc.stringMatching(allowed)).filter(text => allowed.test(text))
  }

  /** Texts for a path or query: valid values and others. */
  function textsFor (schema: Schema) {
    return fc.oneof(
      { weight: 6, arbitrary: valuesFor(schema).map(String) },
      { weight: 1, arbitrary: fc.string({ unit: character, maxLength: 8 }) },
      { weight: 1, arbitrary: unusual }
    )
  }

  function resolved (schema: Schema): Schema {
    return schema.$ref ? components.schemas[schema.$ref.split('/').at(-1) ?? ''] as Schema : schema
  }
}

/** Characters that are allowed in a header. */
const fieldValue = /^[\x20-\x7e\x80-\xff]*$/

const anyMethod = fc.constantFrom(...METHODS.filter(method => method !== 'CONNECT'))

/** JSON that lenient parsers accept. */
const awkward = fc.constantFrom<unknown>(
  '1', null, true, [], [1], {}, 1.5, -0, 2 ** 53, 2 ** 63, 5e-324, Number.MAX_VALUE, '\ud800', '\0', '\u2028'
)

/** Texts that lenient parsers accept as integers, and others. */
const unusual = fc.constantFrom('', '-', '1e2', '0x10', ' 1', '1.5', '007', '-0', '٣', '..', '1/2', 'MQ')

const malformed = fc.constantFrom(
  '', '[]', '{"__proto__": {"id": 1}}', '\ufeff{}', '{"id":1e400}', '{"constructor":{"prototype":1}}', '[['.repeat(99)
)

const otherHeaders = fc.dictionary(
  fc.constantFrom('accept', 'content-type', 'cookie', 'range', 'authorization', 'x-forwarded-for'),
  fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map(code => String.fromCharCode(code)) })
    .filter(text => fieldValue.test(text)),
  { maxKeys: 2 }
)
