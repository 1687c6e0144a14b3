import type { TSchema } from '@sinclair/typebox'
import { ConflictingRequest, details, ErrorBody, InvalidRequest, missingScope, type Problem } from '../../schemas/errors.js'
import { schemaName } from '../../schemas/fields.js'
import { errorBody, invalid } from '../http/errors.js'

/** The parts of an operation in an OpenAPI document that are used here. */
export interface Operation {
  operationId?: string
  tags?: string[]
  security?: Record<string, string[]>[]
  parameters?: { in: string, name: string, schema: TSchema, example?: unknown }[]
  requestBody?: Body
  responses: Record<string, Body>
}

interface Body {
  headers?: Record<string, unknown>
  content?: Record<string, { schema: TSchema, example?: unknown }>
}

/** Adds an example to every body that is a component or a list of it, because @fastify/swagger drops what is next to a `$ref`. */
export function addExamples (operation: Operation, schemas: Record<string, TSchema>, isOwn: boolean) {
  const { parameters = [], requestBody, responses, security = [] } = operation
  const [scope] = security.flatMap(schemes => Object.values(schemes).flat())
  const inPath = parameters.find(parameter => parameter.in === 'path' && parameter.schema.type === 'integer')
  const [requestMedia] = Object.values(requestBody?.content ?? {})
  const { items } = { ...requestMedia?.schema }
  const { required = [], properties = {} } = { ...schemas[nameOf(items ?? requestMedia?.schema)] }

  for (const [status, body] of Object.entries({ ...responses, request: requestBody })) {
    for (const media of Object.values(body?.content ?? {})) {
      const inList = sampleIn(nameOf(media.schema?.items))
      const example = exampleOf(nameOf(media.schema), status) ?? media.example ?? (inList && [inList])
      if (example !== undefined) media.example = example
    }
  }

  // Swagger UI fills the example of a parameter in, but these are optional, and the example of an Idempotency-Key fits only one request.
  for (const parameter of parameters.filter(parameter => parameter.in !== 'path' && parameter.example !== undefined)) {
    parameter.schema.examples = [parameter.example]
    delete parameter.example
  }

  function exampleOf (component: string, status: string) {
    if (status === '403' && scope !== undefined) return { detail: missingScope(scope) }
    // `default` in the document stands for the responses of Node and Fastify to invalid HTTP.
    if (schemaName(component) === schemaName(ErrorBody.$id)) return { detail: Object({ ...details, default: details[431] })[status] }
    if (schemaName(component) === schemaName(InvalidRequest.$id)) return invalidExample()
    if (schemaName(component) === schemaName(ConflictingRequest.$id)) return conflictExample()
    const example = sampleIn(component)
    return Object.hasOwn(Object(example), 'id') && inPath?.example ? { ...Object(example), id: inPath.example } : example
  }

  /** An example of a component. The schemas of a host are left alone. */
  function sampleIn (component: string) {
    return isOwn ? sampleOf(schemas[component], schemas) : schemas[component]?.examples?.[0]
  }

  /** The response to a request of this operation that is invalid in one place. */
  function invalidExample () {
    const limit = parameters.find(({ schema }) => schema.minimum !== undefined)
    if (required.length > 0) return invalidIn('body', `${items ? '/0' : ''}/${required.at(-1)}`, 'is required')
    if (inPath) return invalidIn('path', `/${inPath.name}`, 'must be an integer')
    if (limit) return invalidIn('query', `/${limit.name}`, `must be at least ${limit.schema.minimum}`)
    return invalidIn('request', '', 'must be well-formed HTTP')
  }

  /** The response to a record that conflicts with another one, or to a key in use if the record has no unique field. */
  function conflictExample () {
    const [unique] = Object.entries<TSchema>(properties).filter(([, { description = '' }]) => /\bunique$/.test(description))
    if (unique) return errorBody(invalid('body', [{ path: `/${unique[0]}`, message: 'is already used' }], 'Conflict'), 409)
    if (parameters.some(({ name }) => name === 'Idempotency-Key')) return { detail: details[409] }
    return errorBody(invalid('request', [{ path: '', message: 'is referred to by another collection' }], 'Conflict'), 409)
  }
}

const texts: Record<string, string> = {
  date: '2026-01-31',
  'date-time': '2026-01-31T12:00:00Z',
  time: '12:00:00Z',
  duration: 'P1D',
  email: 'ada@example.com',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  uri: 'https://example.com/',
  uuid: '6f1c2b9e-0d5a-4e0f-9a53-3c1d7f2a8b46'
}

/** The example of a schema, or a value that looks like data. What is nested deeper is left out. */
function sampleOf (schema: TSchema = {} as TSchema, schemas: Record<string, TSchema>, depth = 0): unknown {
  const { examples: [example] = [], default: value, const: only, enum: [first] = [], anyOf = [], oneOf = [], allOf = [], type, properties, items } = schema
  const known = [example, value, only, first].find(value => value !== undefined)
  if (known !== undefined || depth > 8) return known
  const sample = (part: TSchema) => sampleOf(part, schemas, depth + 1)
  const [other] = [schemas[nameOf(schema)], ...anyOf, ...oneOf].filter(Boolean)
  if (other && !properties) return sample(other)
  if (properties || allOf.length > 0) {
    const fields = Object.entries<TSchema>({ ...properties }).map(([name, field]) => [name, sample(field)])
    return Object.assign({}, ...allOf.map(sample), Object.fromEntries(fields.filter(([, field]) => field !== undefined)))
  }
  switch ([type].flat()[0]) {
    case 'array': return [sample(items)].filter(item => item !== undefined)
    case 'boolean': return true
    case 'integer': case 'number': return numberOf(schema)
    case 'object': return {}
    case 'string': return textOf(schema)
  }
}

/** The number 1, or the next one that the schema allows. */
function numberOf ({ minimum = 1, exclusiveMinimum = 0, maximum = Infinity, exclusiveMaximum = Infinity, multipleOf = 1 }: TSchema) {
  return Math.min(Math.ceil(Math.max(1, minimum, exclusiveMinimum + 1) / multipleOf) * multipleOf, maximum, exclusiveMaximum - 1)
}

/** A text of the format, or the first of some short texts that matches the pattern. */
function textOf ({ format, pattern = '', minLength = 0, maxLength = Infinity }: TSchema) {
  const candidates = [texts[format] ?? 'text', 'TEXT', 'a', 'A', '1', '12345'].map(text => text.padEnd(Math.min(minLength, 1000), 'x').slice(0, maxLength))
  return candidates.find(text => new RegExp(pattern, 'u').test(text))
}

function invalidIn (part: Problem['in'], path: string, message: string) {
  return errorBody(invalid(part, [{ path, message }]), 400)
}

/** The name of the component that a schema refers to. */
export function nameOf (schema?: TSchema) {
  return String(schema?.$ref?.split('/').at(-1))
}
