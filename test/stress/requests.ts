import { METHODS } from 'node:http'
import fc from 'fast-check'
import type { Sent } from '../support/curl.js'
import type { Document, Operation, Schema } from '../support/document.js'
import { character } from '../support/text.js'

/** Generates valid requests, almost valid ones, and others. */
export function requestsOf ({ paths, components }: Document): fc.Arbitrary<Sent> {
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })))

  const described = fc.constantFrom(...operations).chain(({ path, method, operation: { parameters = [], requestBody } }) => {
    const of = (place: string) => parameters.filter(parameter => parameter.in === place)
    const schema = requestBody?.content['application/json'].schema
    return fc.record({
      method: fc.oneof({ weight: 9, arbitrary: fc.constant(method) }, { weight: 1, arbitrary: anyMethod }),
      target: fc.tuple(
        fc.tuple(...of('path').map(({ name, schema }) => textsFor(schema).map(text => [name, text] as const))),
        pairs(of('query')),
        fc.array(fc.tuple(fc.string(), fc.string()), { maxLength: 1 })
      ).map(([inPath, inQuery, unknown]) => {
        const filled = inPath.reduce((path, [name, text]) => path.replace(`{${name}}`, encodeURIComponent(text)), path)
        const query = new URLSearchParams([...inQuery, ...unknown]).toString()
        return query ? `${filled}?${query}` : filled
      }),
      headers: fc.tuple(pairs(of('header')), otherHeaders).map(([known, other]) =>
        ({ ...other, ...Object.fromEntries(known.filter(([, text]) => fieldValue.test(text)).map(([name, text]) => [name.toLowerCase(), text])) })),
      body: schema ? bodiesFor(schema) : fc.constant(undefined)
    })
  })

  const undescribed = fc.record({
    method: anyMethod,
    target: fc.oneof(
      fc.webPath().map(path => `/${path.replace(/^\/+/, '')}`),
      fc.tuple(fc.constantFrom(...Object.keys(paths)), fc.webSegment()).map(([path, segment]) => `${path.replaceAll(/{\w+}/g, '1')}/x${segment}`)
    ),
    headers: otherHeaders,
    body: fc.constant(undefined)
  })

  return fc.oneof({ weight: 12, arbitrary: described }, { weight: 1, arbitrary: undescribed })

  /** Some of these parameters, rarely one of them twice. */
  function pairs (parameters: NonNullable<Operation['parameters']>) {
    if (parameters.length === 0) return fc.constant([])
    const pair = fc.constantFrom(...parameters).chain(({ name, schema }) => textsFor(schema).map((text): [string, string] => [name, text]))
    return fc.array(pair, { maxLength: 2 })
  }

  /** Valid bodies, almost valid ones, any JSON, and text that is not JSON. */
  function bodiesFor (schema: Schema): fc.Arbitrary<Buffer> {
    const { properties = {}, required } = resolved(schema)
    const good = valuesFor(schema)
    const extended = fc.tuple(good, fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 2 })).map(([record, more]) => ({ ...more, ...record as object }))
    const near = fc.record(Object.fromEntries(Object.entries(properties).map(([name, property]) =>
      [name, fc.oneof({ weight: 4, arbitrary: valuesFor(property) }, { weight: 1, arbitrary: fc.jsonValue() }, { weight: 1, arbitrary: awkward })])
    ), { requiredKeys: required?.slice(1) })
    const encoded = fc.oneof(
      { weight: 6, arbitrary: good },
      { weight: 2, arbitrary: extended },
      { weight: 4, arbitrary: near },
      { weight: 1, arbitrary: fc.jsonValue() }
    ).chain(value => fc.constantFrom(JSON.stringify(value), JSON.stringify(value, null, 2), escaped(JSON.stringify(value))))
    const spoilt = fc.tuple(encoded, fc.nat(), fc.uint8Array({ maxLength: 3 })).map(([text, at, bytes]) => {
      const whole = Buffer.from(text)
      const cut = at % (whole.length + 1)
      return Buffer.concat([whole.subarray(0, cut), bytes, whole.subarray(cut + bytes.length % 2)])
    })
    return fc.oneof(
      { weight: 8, arbitrary: encoded.map(text => Buffer.from(text)) },
      { weight: 2, arbitrary: spoilt },
      { weight: 1, arbitrary: fc.constantFrom('', '[]', '{"__proto__": {"id": 1}}', '\ufeff{}', '{"id": 1e400}', '{"constructor": {"prototype": 1}}', '[['.repeat(5000)).map(text => Buffer.from(text)) }
    )
  }

  /** Values that the schema allows. Small integers are frequent, so that ids repeat. */
  function valuesFor (schema: Schema): fc.Arbitrary<unknown> {
    const { type, properties = {}, required, pattern, minimum = -Infinity, maximum = Infinity } = resolved(schema)
    switch (type) {
      case 'object': return fc.record(
        Object.fromEntries(Object.entries(properties).map(([name, property]) => [name, valuesFor(property)])), { requiredKeys: required })
      case 'integer': {
        const [min, max] = [Math.max(minimum, Number.MIN_SAFE_INTEGER), Math.min(maximum, Number.MAX_SAFE_INTEGER)]
        return fc.oneof(
          { weight: 3, arbitrary: fc.integer({ min: Math.max(min, -3), max: Math.min(max, 30) }) },
          { weight: 1, arbitrary: fc.integer({ min, max }) })
      }
      case 'number': return fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer())
      case 'string': {
        if (pattern === undefined) return fc.string({ unit: character })
        const allowed = new RegExp(pattern, 'u')
        return fc.oneof(fc.string({ unit: character }), fc.stringMatching(allowed)).filter(text => allowed.test(text))
      }
      default: throw new Error(`The document has a type that this test does not know: ${type}`)
    }
  }

  /** Texts for a path or query: valid values and others. */
  function textsFor (schema: Schema) {
    return fc.oneof(
      { weight: 6, arbitrary: valuesFor(schema).map(String) },
      { weight: 1, arbitrary: fc.string({ unit: character, maxLength: 8 }) },
      { weight: 1, arbitrary: fc.constantFrom('', '-', '1e2', '0x10', ' 1', '1.5', '007', '-0', '9'.repeat(30), '٣', '..', '1/2', 'null', 'MQ', 'NTA') }
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
  '1', null, true, [], [1], {}, 1.5, -0, 2 ** 53, -(2 ** 53), 2 ** 63, 5e-324, Number.MAX_VALUE, '\ud800', 'a\udc00b', '\0', 'a\0b', '\u2028', '\r\nx: y'
)

const otherHeaders = fc.dictionary(
  fc.constantFrom('accept', 'content-type', 'cookie', 'range', 'if-none-match', 'origin', 'authorization', 'x-forwarded-for', 'x-http-method-override'),
  fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map(code => String.fromCharCode(code)) }).filter(text => fieldValue.test(text)),
  { maxKeys: 2 }
)

/** The same JSON with its letters escaped. */
function escaped (json: string) {
  return json.replaceAll(/(?<!\\)[g-m]/g, letter => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
