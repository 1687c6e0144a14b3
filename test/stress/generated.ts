import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { isUtf8 } from 'node:buffer'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { connection, written, type Answer } from '../support/connection.js'
import { curl, type Sent } from '../support/curl.js'
import { checkFor, type Document, type Operation } from '../support/document.js'
import { followed } from '../support/helper.js'
import { requestsOf } from './requests.js'
import { seedOf } from './service.js'

interface Stored {
  id: number
  json: string
}

/** What a collection must contain. */
interface Model {
  records: Stored[]
  /** The first record of each idempotency key. */
  keys: Map<string, string>
}

interface Options {
  requests: number
  minutes?: number
  /** Requests that are sent first. */
  examples?: Sent[]
}

/**
 * Sends random requests that follow from the document of a new service, and holds every response against the document
 * and against a model of the collections. A request that fails is told as a curl command, with its seed.
 */
export async function generated (url: string, { requests, minutes = 60, examples = [] }: Options) {
  const document = await (await fetch(`${url}/openapi.json`)).json() as Document
  const judge = await judgeFor(url, document)
  const statuses: Record<number, number> = {}
  let client = connection(url)
  let sent = 0
  let newest: Sent | undefined

  // Requests that fail are not shrunk, because the state of the collections has changed.
  const { failed, errorInstance, seed } = await fc.check(fc.asyncProperty(requestsOf(document), async request => {
    const { status, headers: { location, link } } = await send(request)
    // A created record can be read, and a deleted one cannot, unless another one has its id.
    if (status === 204) await get(request.target)
    if (link) await get(followed(link.slice(1, link.indexOf('>')), request.target))
    if (!location) return
    const target = followed(location, request.target)
    await get(target)
    if (request.headers['idempotency-key']) await send(request)
    if (sent % 2 === 0) await send({ method: 'DELETE', target, headers: {} })
  }), {
    numRuns: requests,
    interruptAfterTimeLimit: minutes * 60_000,
    markInterruptAsFailure: false,
    endOnFailure: true,
    examples: examples.map(request => [request]),
    ...seedOf()
  })
  if (failed) throw new Error(`${errorInstance}\n${newest && curl(url, newest)}\nTEST_SEED=${seed}`)
  for (const path of ['/api/items', '/api/users']) await get(path)
  client.socket.destroy()
  return statuses

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
    judge(request, answer)
    return answer
  }
}

/** Returns a function that fails if a response is not the right one. */
async function judgeFor (url: string, document: Document) {
  const check = checkFor(document)
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: 'document', ...document })
  const routes = Object.entries(document.paths).map(([path, methods]) => {
    return { path, methods, pattern: new RegExp(`^${path.replaceAll(/{\w+}/g, '([^/]*)')}$`) }
  })
  const models = new Map<string, Model>()
  for (const { path } of routes.filter(({ methods }) => methods.post)) {
    const records: { id: number }[] = await (await fetch(url + path)).json() as []
    const stored = records.map(record => ({ id: record.id, json: JSON.stringify(record) }))
    models.set(path, { records: stored, keys: new Map() })
  }

  return function judge (request: Sent, answer: Answer) {
    const { method, target } = request
    const { status, headers } = answer
    const body = answer.body.toString()
    const path = target.replace(/\?.*/, '').replace(/(?<=.)\/$/, '')
    const route = routes.find(({ pattern }) => pattern.test(path))
    const fault = check({ path: route?.path ?? '', method, status, type: headers['content-type'], body })
    equal(fault, undefined, `${status} ${body.slice(0, 300)}`)
    ok(status < 500, body)
    if (status >= 400 && method !== 'HEAD') equal(typeof JSON.parse(body).detail, 'string')
    const operation = route?.methods[method.toLowerCase()]
    const model = models.get(route?.path.replace(/\/{\w+}$/, '') ?? '')
    if (!route || !operation || !model) return
    if (method === 'POST') return judgeCreation(model, operation, request, status, body)
    const text = route.pattern.exec(path)?.[1]
    if (text === undefined) judgeList(model, target, status, body)
    else judgeOne(model, operation, method, text, status, body)
  }

  /** Whether the document allows a text for a parameter. Integers are decimal digits. */
  function isAllowed ({ parameters = [] }: Operation, name: string, text: string) {
    const { schema = {} } = parameters.find(parameter => parameter.name === name) ?? {}
    return ajv.validate(schema, schema.type === 'integer' && /^-?\d+$/.test(text) ? Number(text) : text)
  }

  function judgeOne (model: Model, operation: Operation, method: string, text: string, status: number, body: string) {
    const id = isDecodable(text) && decodeURIComponent(text)
    if (id === false || !isAllowed(operation, operation.parameters?.[0]?.name ?? '', id)) return equal(status, 400)
    const at = model.records.findIndex(record => record.id === Number(id))
    if (at === -1) return equal(status, 404)
    if (method === 'GET') return deepStrictEqual([status, body], [200, model.records[at]?.json])
    equal(status, 204)
    model.records.splice(at, 1)
  }

  function judgeList ({ records }: Model, target: string, status: number, body: string) {
    const known = records.map(({ json }) => json)
    if (!/[?&](limit|after)=/.test(target)) return deepStrictEqual([status, body], [200, `[${known.join(',')}]`])
    if (status !== 200) return
    const listed = (JSON.parse(body) as object[]).map(record => JSON.stringify(record))
    ok(listed.every(json => known.includes(json)), 'a page has only records that were created')
  }

  function judgeCreation (model: Model, operation: Operation, request: Sent, status: number, body: string) {
    const key = request.headers['idempotency-key']?.replaceAll(/^ +| +$/g, '')
    const record = key === undefined || isAllowed(operation, 'Idempotency-Key', key)
      ? recordIn(operation, request.body ?? Buffer.alloc(0))
      : undefined
    if (!record) return equal(status, 400, body)
    const json = JSON.stringify(record)
    const known = key && model.keys.get(key)
    if (known && known !== json) return equal(status, 422)
    deepStrictEqual([status, body], [201, json])
    if (known) return
    if (key) model.keys.set(key, json)
    model.records.push({ id: record.id, json })
  }

  /** The record that a body contains, without unknown fields, if it is valid. */
  function recordIn ({ requestBody }: Operation, body: Buffer) {
    const name = requestBody?.content['application/json'].schema.$ref?.split('/').at(-1) ?? ''
    const value = parsed(body)
    if (value === undefined || !ajv.getSchema(`document#/components/schemas/${name}`)?.(value)) return
    const known = Object.keys(document.components.schemas[name]?.properties ?? {})
    const record = Object.fromEntries(known.map(field => [field, value[field]])) as { id: number }
    return Object.values(record).every(field => String(field).isWellFormed()) ? record : undefined
  }
}

/** The value of a body, if it is valid JSON without forbidden keys. */
function parsed (body: Buffer): Record<string, unknown> | undefined {
  if (!isUtf8(body)) return
  let isHarmful = false
  try {
    const value = JSON.parse(String(body), (key, value) => {
      isHarmful ||= key === '__proto__' || (key === 'constructor' && Object.hasOwn(Object(value), 'prototype'))
      return value
    })
    return isHarmful ? undefined : value
  } catch {
    return undefined
  }
}

function isDecodable (text: string) {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}
