import { equal, ok } from 'node:assert/strict'
import { isUtf8 } from 'node:buffer'
import { METHODS } from 'node:http'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { checkFor, type Document, type Operation, type Schema } from '../document.js'
import { connection, written, type Answer } from './connection.js'
import { seedOf } from './seed.js'

interface Sent {
  method: string
  target: string
  headers: Record<string, string>
  body?: Buffer
}

/** What an answer must be: a status, or one of several where the document leaves it open, and a body. */
interface Expected {
  status: number | number[]
  body?: string
  headers?: Record<string, string>
}

interface Stored {
  id: number
  json: string
  /** Where it is in the order of creation: a page begins after one of these. */
  position: number
}

/** A collection as the test knows it. */
interface Model {
  records: Stored[]
  created: number
  /** What each idempotency key stands for. */
  keys: Map<string, string>
  /** The position that each cursor of a page stands for. */
  cursors: Map<string, number>
}

interface Options {
  requests: number
  /** Whether the engine holds NUL in a text. */
  holdsNul: boolean
  progress? (done: number): void
}

/**
 * Sends requests that follow from the document of a service, and holds every answer against the document and against
 * a model of the collections. The service must be new. A request that fails is told as a curl line, with its seed.
 */
export async function generated (url: string, { requests, holdsNul, progress }: Options) {
  const document = await (await fetch(`${url}/openapi.json`)).json() as Document
  const oracle = await oracleOf(document, { holdsNul, listAt: async path => (await fetch(url + path)).text() })
  const check = checkFor(document)
  const statuses: Record<number, number> = {}
  let client = connection(url)
  let sent = 0
  let newest: Sent | undefined

  // What fails is not made smaller: the collections are not what they were when it failed.
  const { failed, errorInstance, seed } = await fc.check(fc.asyncProperty(requestsOf(document), async request => {
    const answer = await send(request)
    const { location, link } = answer.headers
    // What was created can be read, and what was deleted cannot, unless another has its id.
    if (answer.status === 204) await get(request.target)
    if (location) await get(location)
    // A page leads to the next one, and a request that is sent again with its key is not done again.
    if (link) await get(link.slice(1, link.indexOf('>')))
    if (location && request.headers['idempotency-key']) await send(request)
    if (sent % 500 < 2) for (const path of oracle.lists) await get(path)
  }), { numRuns: requests, endOnFailure: true, ...seedOf() })
  if (failed) throw new Error(`${errorInstance}\n${newest && curl(url, newest)}\nSEED=${seed}`, { cause: errorInstance })
  for (const path of oracle.lists) await get(path)
  client.socket.destroy()
  return { requests: sent, statuses, seed }

  function get (target: string) {
    return send({ method: 'GET', target, headers: {} })
  }

  async function send (request: Sent) {
    newest = request
    const { method, target, headers, body } = request
    const answer = await client.send(written(method, target, body, headers), method === 'HEAD')
    if (answer.headers.connection === 'close') client = connection(url)
    sent++
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1
    if (sent % 1000 === 0) progress?.(sent)
    judge(request, answer)
    return answer
  }

  function judge (request: Sent, answer: Answer) {
    const { status, headers } = answer
    const body = answer.body.toString()
    const expected = oracle.expect(request, answer)
    const allowed = [expected.status].flat()
    ok(allowed.includes(status), `it should be ${allowed.join(' or ')}, but is ${status}: ${body.slice(0, 300)}`)
    if (expected.body !== undefined && request.method !== 'HEAD') equal(body, expected.body)
    for (const [name, value] of Object.entries(expected.headers ?? {})) equal(headers[name], value)
    if (status >= 400 && request.method !== 'HEAD') equal(typeof JSON.parse(body).detail, 'string')
    for (const banner of ['server', 'x-powered-by']) equal(headers[banner], undefined)
    ok(status < 400 || !/node_modules|\.[jt]s:\d/.test(body), `it tells of the inside: ${body}`)
    const path = oracle.routeOf(request.target)?.path ?? ''
    equal(check({ path, method: request.method, status, type: headers['content-type'], body }), undefined)
  }
}

/** Requests that the document describes, requests that are nearly so, and others. */
function requestsOf ({ paths, components }: Document): fc.Arbitrary<Sent> {
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
        ({ ...other, ...Object.fromEntries(known.filter(([, text]) => fieldValue.test(text))) })),
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

  /** Some of these parameters, seldom one of them twice. */
  function pairs (parameters: NonNullable<Operation['parameters']>) {
    if (parameters.length === 0) return fc.constant([])
    const pair = fc.constantFrom(...parameters).chain(({ name, schema }) => textsFor(schema).map((text): [string, string] => [name, text]))
    return fc.array(pair, { maxLength: 2 })
  }

  /** Bodies that the schema allows, bodies that are nearly so, any JSON, and what is none. */
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

  /** Values that the schema allows. Small integers are frequent, so that ids meet. */
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
        if (pattern === undefined) return fc.string({ unit: 'binary' })
        const allowed = new RegExp(pattern, 'u')
        return fc.oneof(fc.string({ unit: 'binary' }), fc.stringMatching(allowed)).filter(text => allowed.test(text))
      }
      default: throw new Error(`The document has a type that this test does not know: ${type}`)
    }
  }

  /** Texts for a path or a query: of values that the schema allows, and others. */
  function textsFor (schema: Schema) {
    return fc.oneof(
      { weight: 6, arbitrary: valuesFor(schema).map(String) },
      { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 8 }) },
      { weight: 1, arbitrary: fc.constantFrom('', '-', '1e2', '0x10', ' 1', '1.5', '007', '-0', '9'.repeat(30), '٣', '..', '1/2', 'null', 'MQ', 'NTA') }
    )
  }

  function resolved (schema: Schema): Schema {
    return schema.$ref ? components.schemas[schema.$ref.split('/').at(-1) ?? ''] as Schema : schema
  }
}

/** What may stand in a header; the rest is no HTTP. */
const fieldValue = /^[\x20-\x7e\x80-\xff]*$/

const anyMethod = fc.constantFrom(...METHODS.filter(method => method !== 'CONNECT'))

/** What breaks programs that read JSON too kindly. */
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

/** Tells what an answer must be, by the document and by what was answered before. */
async function oracleOf (document: Document, { holdsNul, listAt }: { holdsNul: boolean, listAt (path: string): Promise<string> }) {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: 'document', ...document })
  const routes = Object.entries(document.paths).map(([path, methods]) => ({
    path, methods, pattern: new RegExp(`^${path.replaceAll(/{\w+}/g, '([^/]*)')}$`)
  }))
  const lists = routes.filter(({ methods }) => methods.post).map(({ path }) => path)
  const models = new Map<string, Model>()
  for (const path of lists) {
    const model: Model = { records: [], created: 0, keys: new Map(), cursors: new Map() }
    for (const record of JSON.parse(await listAt(path))) append(model, record)
    models.set(path, model)
  }
  return { lists, expect, routeOf }

  function routeOf (target: string) {
    const [path = ''] = target.split('?')
    return routes.find(({ pattern }) => pattern.test(path))
  }

  function expect ({ method, target, headers, body }: Sent, answer: Answer): Expected {
    const [path = '', query] = target.split('?')
    if (!isDecodable(path)) return { status: 400 }
    const route = routeOf(target)
    if (route === undefined) return pages.test(path) ? { status: [200, 302, 404, 405] } : { status: 404 }
    const allow = ['GET', 'HEAD', 'POST', 'DELETE'].filter(name => (name === 'HEAD' ? 'get' : name.toLowerCase()) in route.methods)
    if (!allow.includes(method)) return { status: 405, headers: { allow: allow.join(', ') } }
    const text = decodeURIComponent(route.pattern.exec(path)?.[1] ?? '')
    const model = models.get(route.path) ?? models.get(route.path.replace(/\/{\w+}$/, ''))
    if (model === undefined) return { status: 200 }
    const operation = route.methods[method === 'HEAD' ? 'get' : method.toLowerCase()] as Operation
    if (method === 'POST') return expectCreation(model, operation, route.path, headers, body ?? Buffer.alloc(0))
    if (!models.has(route.path)) return expectOne(model, operation, method, text)
    return expectList(model, operation, new URLSearchParams(query), answer)
  }

  /** Tells whether the document allows a text for a parameter. Integers are written in decimal digits. */
  function allows ({ parameters = [] }: Operation, name: string, text: string) {
    const { schema } = parameters.find(parameter => parameter.name === name) as NonNullable<Operation['parameters']>[0]
    return ajv.validate(schema, schema.type === 'integer' && /^-?\d+$/.test(text) ? Number(text) : text)
  }

  function expectOne (model: Model, operation: Operation, method: string, text: string): Expected {
    if (!allows(operation, operation.parameters?.[0]?.name ?? '', text)) return { status: 400 }
    const at = model.records.findIndex(({ id }) => id === Number(text))
    const [found] = at === -1 ? [] : method === 'DELETE' ? model.records.splice(at, 1) : [model.records[at]]
    if (found === undefined) return { status: 404, body: '{"detail":"Not found"}' }
    return method === 'DELETE' ? { status: 204, body: '' } : { status: 200, body: found.json }
  }

  function expectList (model: Model, operation: Operation, query: URLSearchParams, answer: Answer): Expected {
    const [limits, afters] = [query.getAll('limit'), query.getAll('after')]
    const [limit, after] = [limits[0], afters[0]]
    if (limits.length > 1 || afters.length > 1) return { status: 400 }
    if (limit === undefined) return after === undefined ? { status: 200, body: listOf(model.records) } : { status: 400 }
    if (!allows(operation, 'limit', limit)) return { status: 400 }
    const start = after === undefined ? -1 : model.cursors.get(after)
    if (start === undefined) return { status: [200, 400] }
    const rest = model.records.filter(({ position }) => position > start)
    const page = rest.slice(0, Number(limit))
    const next = new URLSearchParams(/\?(.*)>/.exec(answer.headers.link ?? '')?.[1]).get('after')
    equal(next !== null, rest.length > page.length, 'there is a link where there is more')
    if (next !== null) model.cursors.set(next, page.at(-1)?.position ?? -1)
    return { status: 200, body: listOf(page) }
  }

  function expectCreation (model: Model, operation: Operation, path: string, sent: Sent['headers'], body: Buffer): Expected {
    const key = sent['idempotency-key']?.replaceAll(/^ +| +$/g, '')
    if (key !== undefined && !allows(operation, 'idempotency-key', key)) return { status: 400 }
    const value = parsed(body)
    const name = operation.requestBody?.content['application/json'].schema.$ref?.split('/').at(-1) ?? ''
    const validate = ajv.getSchema(`document#/components/schemas/${name}`)
    if (value === undefined || !validate?.(value)) return { status: 400 }
    const record = pick(value as { id: number }, Object.keys(document.components.schemas[name]?.properties ?? {}))
    if (!holdsNul && Object.values(record).some(field => String(field).includes('\0'))) return { status: 400 }
    const json = JSON.stringify(record)
    const created = { status: 201, body: json, headers: { location: `${path}/${record.id}` } }
    const known = key && model.keys.get(key)
    if (known) return known === json ? created : { status: 422 }
    if (key) model.keys.set(key, json)
    append(model, record)
    return created
  }
}

/** What the document does not describe: itself, and the pages that show it. */
const pages = /^\/(docs|redoc|openapi\.json)(\/|$)/

function append (model: Model, record: { id: number }) {
  model.records.push({ id: record.id, json: JSON.stringify(record), position: model.created++ })
}

function listOf (records: Stored[]) {
  return `[${records.map(({ json }) => json).join(',')}]`
}

/** What a body says, if it is JSON that does no harm. */
function parsed (body: Buffer): unknown {
  if (!isUtf8(body)) return
  try {
    let harmful = false
    const value = JSON.parse(body.toString(), (key, value) => {
      harmful ||= key === '__proto__' || (key === 'constructor' && Object.hasOwn(Object(value), 'prototype'))
      return value
    })
    return harmful ? undefined : value
  } catch {
    return undefined
  }
}

function pick<T extends object> (value: T, names: string[]) {
  return Object.fromEntries(names.map(name => [name, value[name as keyof T]])) as T
}

function isDecodable (path: string) {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/** A request as a line for the shell. */
function curl (url: string, { method, target, headers, body }: Sent) {
  const quoted = (text: string) => `$'${text.replaceAll(/['\\]|[^\x20-\x7e]/g, character => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`)}'`
  return [
    `curl --include --path-as-is --globoff --request ${method} ${quoted(url + target)}`,
    ...method === 'HEAD' ? ['--head'] : [],
    ...Object.entries(headers).map(([name, value]) => `--header ${quoted(value.trim() ? `${name}: ${value}` : `${name};`)}`),
    ...body ? [`--data-binary @<(base64 --decode <<< ${body.toString('base64')})`] : []
  ].join(' ')
}
