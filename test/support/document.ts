import { readFileSync } from 'node:fs'
import { STATUS_CODES } from 'node:http'
import { pipeline, Readable, Transform } from 'node:stream'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Test } from 'tap'
import { curl } from './curl.js'

/** A response, and its path in the document. */
interface Answer {
  path: string
  method: string
  status: number
  type: unknown
  body: unknown
}

/** Checks a response and returns the problem. */
type Check = (answer: Answer) => string | undefined

/** By the settings of the service. */
const checks = new Map<string, Check>()

/**
 * Holds every answer of an app against the document of the app: its status, its content type and its body. When a check
 * fails, the newest request is told as a curl command.
 */
export function checkAnswers (t: Test, app: FastifyInstance, settings: string) {
  let newest: FastifyRequest | undefined
  t.setMaxListeners(0) // a test may have many apps
  t.on('res', result => { if (!(result as { ok: boolean }).ok && newest) t.comment(commandOf(newest)) })
  app.addHook('onSend', async function holdAgainstDocument (request, reply, body) {
    newest = request
    const check = checks.get(settings) ?? checkFor(app.swagger())
    checks.set(settings, check)
    const { method, routeOptions, is404 } = request
    const path = is404 ? '' : String(routeOptions.url).replaceAll(/:(\w+)/g, '{$1}')
    if (!(body instanceof Readable) || method === 'HEAD') return hold(body)

    // A streamed body is checked after it has been sent.
    const pieces: Buffer[] = []
    return pipeline(body, new Transform({
      transform (piece, _encoding, done) {
        pieces.push(piece)
        done(null, piece)
      },
      flush (done) {
        hold(Buffer.concat(pieces))
        done()
      }
    }), () => {})

    function hold<T> (body: T) {
      const fault = check({ path, method, status: reply.statusCode, type: reply.getHeader('content-type'), body })
      if (fault) t.fail(`${method} ${request.url} ${reply.statusCode}: ${fault}`)
      return body
    }
  })
}

/** A request as a command for the service that `npm start` starts. */
function commandOf ({ method, url, headers: all, body }: FastifyRequest) {
  const { host, connection, 'user-agent': client, 'content-length': length, ...headers } = all
  const sent = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))
  return curl('http://127.0.0.1:3000',
    { method, target: url, headers: sent, body: body === undefined ? undefined : Buffer.from(JSON.stringify(body)) })
}

/** Like `fetch`, but validates responses against the document of the default service. */
export async function checkedFetch (...[input, init]: Parameters<typeof fetch>) {
  const response = await fetch(input, init)
  const { pathname } = new URL(String(input))
  const path = Object.keys(byDefault.paths).find(path =>
    new RegExp(`^${path.replaceAll(/{\w+}/g, '-?\\d+')}$`).test(pathname)) ?? ''
  // A long list has no content-length; it is not read here.
  const body = response.headers.has('content-length') ? await response.clone().text() : undefined
  const fault = checkDefault({
    path,
    method: init?.method ?? 'GET',
    status: response.status,
    type: response.headers.get('content-type'),
    body
  })
  if (fault) throw new Error(`${init?.method ?? 'GET'} ${pathname} ${response.status}: ${fault}`)
  return response
}

const byDefault: Document = JSON.parse(readFileSync('openapi.json', 'utf8'))
const checkDefault = checkFor(byDefault)

/** The parts of an OpenAPI document that tests read. */
export interface Document {
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema> }
}

export interface Operation {
  parameters?: { in: string, name: string, schema: Schema }[]
  requestBody?: { content: { 'application/json': { schema: Schema } } }
  responses: Record<string, { content?: object }>
}

export interface Schema {
  $ref?: string
  type?: string
  pattern?: string
  minimum?: number
  maximum?: number
  properties?: Record<string, Schema>
  required?: string[]
}

/** Returns a function that validates responses against a document. */
export function checkFor (document: object): Check {
  const ajv = new Ajv2020({
    ownProperties: true,
    strict: false,
    validateFormats: false,
    multipleOfPrecision: 2,
    meta: false,
    validateSchema: false,
    code: { optimize: false }
  })
  const { paths } = document as Document
  ajv.addSchema({ $id: 'document', ...document })
  const validators = new Map<string, ValidateFunction>()

  return ({ path, method, status, type, body }) => {
    const operation = paths[path]?.[method.toLowerCase()]
    if (operation === undefined || !(status in STATUS_CODES)) return
    const described = [
      status, ...status >= 400 && status < 500 ? ['default'] : []
    ].find(status => status in operation.responses)
    if (described === undefined) return 'the document does not have this status'
    if (operation.responses[described]?.content === undefined) return body ? 'there should be no body' : undefined
    if (type !== 'application/json; charset=utf-8') return `${type} is no JSON`
    if (typeof body !== 'string' && !Buffer.isBuffer(body)) return
    const pointer = [
      'paths', path, method.toLowerCase(), 'responses', String(described), 'content', 'application/json', 'schema'
    ]
      .map(part => part.replaceAll('~', '~0').replaceAll('/', '~1')).join('/')
    const validate = validators.get(pointer) ?? ajv.compile({ $ref: `document#/${encodeURI(pointer)}` })
    validators.set(pointer, validate)
    return validate(JSON.parse(String(body))) ? undefined : ajv.errorsText(validate.errors)
  }
}
