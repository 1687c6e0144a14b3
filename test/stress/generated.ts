import { equal, ok } from 'node:assert/strict'
import { isUtf8 } from 'node:buffer'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { curl, type Sent } from '../support/curl.js'
import { checkFor, type Document, type Operation } from '../support/document.js'
import { connection, written, type Answer } from '../support/connection.js'
import { followed } from '../support/helper.js'
import { requestsOf } from './requests.js'
import { seedOf } from './seed.js'

/** The expected response: a status, or several if the document does not specify it, and a body. */
interface Expected {
  status: number | number[]
  body?: string
  headers?: Record<string, string>
}

interface Stored {
  id: number
  json: string
  /** Its position in order of creation. */
  position: number
}

/** The model of a collection. */
interface Model {
  records: Stored[]
  created: number
  /** The first use of each idempotency key. */
  keys: Map<string, string>
  /** The position of each cursor. */
  cursors: Map<string, number>
}

interface Options {
  requests: number
  /** Whether the engine can store the character NUL. */
  progress? (done: number): void
  /** Requests that are sent first. */
  examples?: Sent[]
}

/**
 * Sends requests that follow from the document of a service, and holds every answer against the document and against
 * a model of the collections. The service must be new. A request that fails is told as a curl line, with its seed.
 */
export async function generated (url: string, { requests, progress, examples = [] }: Options) {
  const document = await (await fetch(`${url}/openapi.json`)).json() as Document
  const oracle = await oracleOf(document, { listAt: async path => (await fetch(url + path)).text() })
  const check = checkFor(document)
  const statuses: Record<number, number> = {}
  let client = connection(url)
  let sent = 0
  let newest: Sent | undefined

  // Failing requests are not shrunk, because the state of the collections has changed.
  const { failed, errorInstance, seed } = await fc.check(fc.asyncProperty(requestsOf(document), async request => {
    const answer = await send(request)
    const { location, link } = answer.headers
    // A created record can be read, and a deleted one cannot, unless another one has its id.
    if (answer.status === 204) await get(request.target)
    if (location) await get(followed(location, request.target))
    // A page links to the next one, and a request that is retried with its key creates nothing.
    if (link) await get(followed(link.slice(1, link.indexOf('>')), request.target))
    if (location && request.headers['idempotency-key']) await send(request)
    // Many of the created records are deleted again.
    if (location && sent % 2 === 0) await send({ method: 'DELETE', target: followed(location, request.target), headers: {} })
    if (sent % 500 < 2) for (const path of oracle.lists) await get(path)
  }), { numRuns: requests, endOnFailure: true, examples: examples.map(request => [request]), ...seedOf() })
  if (failed) throw new Error(`${errorInstance}\n${newest && curl(url, newest)}\nTEST_SEED=${seed}`, { cause: errorInstance })
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

/** Returns whether a header with ETags is `*`. Other generated values are never an ETag. */
function isAny (header = '') {
  return header.trim() === '*'
}

/** The status that the preconditions of a request lead to, for a record or list that exists. */
function precondition (method: string, { 'if-match': match, 'if-none-match': noneMatch }: Sent['headers']) {
  if (match !== undefined && !isAny(match)) return 412
  if (isAny(noneMatch)) return method === 'GET' || method === 'HEAD' ? 304 : 412
}

/** Returns the expected response, from the document and the model. */
async function oracleOf (document: Document, { listAt }: { listAt (path: string): Promise<string> }) {
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
    const path = pathOf(target)
    return routes.find(({ pattern }) => pattern.test(path))
  }

  function expect ({ method, target, headers, body }: Sent, answer: Answer): Expected {
    const path = pathOf(target)
    const [, query] = target.split('?')
    if (!isDecodable(path)) return { status: 400 }
    // Generated origins are never the one of the service.
    if (!['GET', 'HEAD', 'OPTIONS'].includes(method) && /[^ ]/.test(headers.origin ?? '')) return { status: 403 }
    const route = routeOf(target)
    if (route === undefined) return pages.test(path) ? { status: [200, 204, 302, 404, 405] } : { status: 404 }
    const allow = ['GET', 'HEAD', 'POST', 'DELETE'].filter(name => (name === 'HEAD' ? 'get' : name.toLowerCase()) in route.methods)
    if (!allow.includes(method)) return { status: method === 'OPTIONS' ? 204 : 405, headers: { allow: [...allow, 'OPTIONS'].join(', ') } }
    const text = decodeURIComponent(route.pattern.exec(path)?.[1] ?? '')
    const model = models.get(route.path) ?? models.get(route.path.replace(/\/{\w+}$/, ''))
    if (model === undefined) return { status: 200 }
    const operation = route.methods[method === 'HEAD' ? 'get' : method.toLowerCase()] as Operation
    const unmet = precondition(method, headers)
    if (method === 'POST') return expectCreation(model, operation, target, headers, body ?? Buffer.alloc(0))
    const expected = models.has(route.path)
      ? expectList(model, operation, new URLSearchParams(query), answer)
      : expectOne(model, operation, method, text, unmet)
    return expected.status === 200 && unmet ? { status: unmet } : expected
  }

  /** Returns whether the document allows a text for a parameter. Integers are decimal digits. */
  function allows ({ parameters = [] }: Operation, name: string, text: string) {
    const { schema } = parameters.find(parameter => parameter.name === name) as NonNullable<Operation['parameters']>[0]
    return ajv.validate(schema, schema.type === 'integer' && /^-?\d+$/.test(text) ? Number(text) : text)
  }

  function expectOne (model: Model, operation: Operation, method: string, text: string, unmet?: number): Expected {
    if (!allows(operation, operation.parameters?.[0]?.name ?? '', text)) return { status: 400 }
    const at = model.records.findIndex(({ id }) => id === Number(text))
    if (at !== -1 && method === 'DELETE' && unmet) return { status: unmet }
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
    if (answer.status !== 200) return { status: 200 }
    const next = new URLSearchParams(/\?(.*)>/.exec(answer.headers.link ?? '')?.[1]).get('after')
    equal(next !== null, rest.length > page.length, 'there is a link where there is more')
    if (next !== null) model.cursors.set(next, page.at(-1)?.position ?? -1)
    return { status: 200, body: listOf(page) }
  }

  function expectCreation (model: Model, operation: Operation, target: string, sent: Sent['headers'], body: Buffer): Expected {
    const key = sent['idempotency-key']?.replaceAll(/^ +| +$/g, '')
    if (key !== undefined && !allows(operation, 'Idempotency-Key', key)) return { status: 400 }
    const value = parsed(body)
    const name = operation.requestBody?.content['application/json'].schema.$ref?.split('/').at(-1) ?? ''
    const validate = ajv.getSchema(`document#/components/schemas/${name}`)
    if (value === undefined || !validate?.(value)) return { status: 400 }
    const record = pick(value as { id: number }, Object.keys(document.components.schemas[name]?.properties ?? {}))
    const texts = Object.values(record).map(String)
    if (!texts.every(text => text.isWellFormed())) return { status: 400 }
    const unmet = precondition('POST', sent)
    if (unmet) return { status: unmet }
    const json = JSON.stringify(record)
    const created = { status: 201, body: json, headers: { location: locationOf(target, record.id) } }
    const known = key && model.keys.get(key)
    if (known) return known === json ? created : { status: 422 }
    if (key) model.keys.set(key, json)
    append(model, record)
    return created
  }
}

/** Paths that are not in the document: the links, the document and its pages. */
const pages = /^\/((docs|redoc|openapi\.json|favicon\.ico)(\/|$)|$)/

/** The path of a target. A slash at its end is ignored. */
function pathOf (target: string) {
  return target.replace(/\?.*/, '').replace(/(?<=.)\/$/, '')
}

/** The location of a record, relative to the target of the request that created it. */
function locationOf (target: string, id: number) {
  const collection = target.replace(/\?.*/, '').split('/').at(-1)
  return collection ? `./${collection}/${id}` : `./${id}`
}

function append (model: Model, record: { id: number }) {
  model.records.push({ id: record.id, json: JSON.stringify(record), position: model.created++ })
}

function listOf (records: Stored[]) {
  return `[${records.map(({ json }) => json).join(',')}]`
}

/** The value of a body, if it is valid JSON without forbidden keys. */
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
