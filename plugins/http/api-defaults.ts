import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import { Type, type TObject, type TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema, FastifySchemaCompiler } from 'fastify'
import { schemaId, schemaName } from '../../schemas/fields.js'
import { olderSchema } from '../schema/older-versions.js'
import { nestedFieldsRemover } from '../schema/access.js'
import { checkerOf, problemsOfEach } from '../schema/validation.js'
import { pointer } from '../schema/walk.js'
import errors, { httpError, invalid, parts } from './errors.js'
import jsonBody from './json-body.js'
import { failures, forbidden, rateHeaders } from './responses.js'

const applied = Symbol('api defaults')

/**
 * Body parsing, validation and errors for the routes of a scope, whatever compilers, Ajv options and shared schemas the host
 * uses for its own routes. Completes the schemas of the routes. Does nothing if a parent scope has these defaults.
 */
export async function applyApiDefaults (app: FastifyInstance, errorHandler = true, prefix = app.prefix) {
  if (app.hasDecorator(applied)) return
  app.decorate(applied, prefix === '' || prefix === '/api' ? '' : prefix)
  app.setReplySerializer(body => JSON.stringify(body))

  app.addHook('onRoute', function completeRoute (route) {
    const schema = { ...route.schema } as FastifySchema & { params?: TObject, response?: Record<string, TSchema> }
    const inUrl = Array.from(route.url.matchAll(/(?<!:):(\w+)/g), ([, name = '']) => [name, Type.String()])
    const responses = Object.entries(withGuards(app, String(route.method), { ...schema.response }))
    /* c8 ignore next -- only some versions of Fastify do */
    if (Object(route.config).swaggerTransform === transform) return // Fastify calls it again for the HEAD route of a GET route
    route.schema = {
      ...schema,
      // @fastify/swagger documents the parameters of a prefix, such as `/:tenant/api`, only if the route has none.
      ...schema.params && { params: Type.Object({ ...Object.fromEntries(inUrl), ...schema.params.properties }) },
      // The errors of a host have a format of their own.
      response: Object.fromEntries(responses.filter(([status]) => errorHandler || Number(status) < 400))
    }
    route.config = { swaggerTransform: transform, ...route.config }
    route.validatorCompiler = definition => compileValidator(this, definition)
    route.serializerCompiler = () => JSON.stringify // stores return JSON, so only errors are left to serialize
  })

  await app.register(errors, { errorHandler }).register(jsonBody)
}

/** A unique operation id, and a tag for each API version. `docs` removes our namespace again. */
export function namesIn (app: FastifyInstance, operationId: string, tag: string) {
  const prefix = app.getDecorator<string>(applied)
  // '/api/v1' is 'ApiV1' and '/api-v1' is 'Api_2dv1'.
  const suffix = prefix
    .replaceAll(/\/([A-Za-z0-9]?)/g, (_, first: string) => first.toUpperCase())
    .replaceAll(/[^A-Za-z0-9]/g, character => `_${character.charCodeAt(0).toString(16)}`)
  return { operationId: schemaId(operationId + suffix), tags: [prefix === '' ? tag : `${tag} (${prefix})`] }
}

/** Compiles the validator of one part of a request. The body of a PATCH is validated with its record, and that of a PUT can leave out the id. */
function compileValidator (app: FastifyInstance, definition: Parameters<FastifySchemaCompiler<FastifySchema>>[0]): ReturnType<FastifySchemaCompiler<FastifySchema>> {
  const given = definition.schema as TObject
  const part = parts[definition.httpPart as keyof typeof parts]
  if (part === 'body' && definition.method === 'PATCH') return () => true
  const { items, ...list } = given
  const isList = items?.$ref !== undefined
  const { $ref } = isList ? items : given
  const schema = $ref ? app.getSchema($ref) as TObject : part === 'headers' ? withLowerCaseNames(given) : given
  const required = definition.method === 'PUT' ? schema.required?.filter(name => name !== 'id') : schema.required
  if (part === 'body') return bodyValidator({ ...schema, required } as TObject, isList ? list : undefined)
  const problemsIn = checkerOf(schema)
  const { properties } = schema
  const names = Object.keys(properties)
  const typed = Object.entries(properties).filter(([, { type }]) => type !== 'string')
  const isClosed = schema.additionalProperties === false
  const isOptional = !problemsIn({}) && !isClosed
  return data => {
    // The path of the list with a slash at its end.
    if (part === 'path' && names.some(name => data[name] === '')) return { error: httpError(404) }
    // Most requests have none of the optional parameters.
    if (isOptional && names.every(name => data[name] === undefined)) return true
    for (const [name, property] of typed) if (data[name] !== undefined) data[name] = converted(data[name], property)
    const problems = isClosed ? problemsIn(data)?.map(ofParameter) ?? problemsOfTexts(data) : problemsIn(data)
    return problems?.length ? { error: invalid(part, problems) } : true
  }
}

/** Returns a function that validates a record, or a list of records. The handlers check their numbers, in another turn of the event loop. */
function bodyValidator (schema: TObject, list?: TSchema) {
  const removeNestedFields = nestedFieldsRemover(schema)
  const problemsIn = checkerOf(schema)
  const problemsInList = list && checkerOf(list)
  return (body: unknown) => {
    const problems = problemsInList ? problemsInList(body) ?? problemsOfEach(body as unknown[], problemsInRecord) : problemsInRecord(body)
    return problems ? { error: invalid('body', problems) } : true
  }

  function problemsInRecord (record: unknown, isDetailed?: () => boolean) {
    removeNestedFields?.(record)
    return problemsIn.bySchema(record, isDetailed)
  }
}

/** Converts the text of a parameter to the type of its schema. The validator rejects all other texts. */
function converted (value: unknown, { type, items }: TSchema): unknown {
  if (type === 'array') return [value].flat().map(item => converted(item, items))
  if (typeof value !== 'string') return value
  // An integer beyond the largest number is still an integer.
  if (type === 'integer' && /^-?\d+$/.test(value)) return Math.max(-Number.MAX_VALUE, Math.min(Number(value), Number.MAX_VALUE))
  if (type === 'number' && /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/i.test(value)) return Number(value)
  return type === 'boolean' && ['true', 'false'].includes(value) ? value === 'true' : value
}

/** The problem of a parameter that can be repeated, or that does not exist. */
function ofParameter ({ path, message }: { path: string, message: string }) {
  return { path: path.replace(/(?<=.)\/\d+$/, ''), message: message.replace('known field', 'known parameter') }
}

/** Problems of texts that databases cannot compare. */
function problemsOfTexts (data: Record<string, unknown>) {
  return Object.entries(data).filter(([, value]) => [value].flat().some(text => typeof text === 'string' && text.includes('\0')))
    .map(([name]) => ({ path: pointer(name), message: 'must not contain the character NUL' }))
}

/** Adds the responses of the guards of a scope, which are detected by their decorators. */
function withGuards (app: FastifyInstance, method: string, responses: Record<string, TSchema>) {
  const isLimited = app.hasDecorator('rateLimiter')
  const hasAuth = app.hasRequestDecorator('bearerToken')
  const limited = Object.entries(responses).map(([status, schema]) =>
    [status, isLimited && status.startsWith('2') ? { ...schema, headers: { ...schema.headers, ...rateHeaders } } : schema])
  return {
    ...Object.fromEntries(limited),
    ...hasAuth && { 401: failures[401], 403: forbidden.scope },
    ...app.hasDecorator('crossOriginProtection') && method !== 'GET' && method !== 'HEAD' && { 403: hasAuth ? forbidden.scopeOrOrigin : forbidden.origin },
    ...isLimited && { 429: failures[429] }
  }
}

/**
 * Keeps the document of a host valid: our routes are documented as they are, whatever the `transform` of the host expects,
 * and our schemas in the words of its version.
 */
const transform: NonNullable<FastifyDynamicSwaggerOptions['transform']> = function transform ({ schema, url, ...document }) {
  const isSwagger = 'swaggerObject' in document
  const schemas: Record<string, TSchema> = Object(isSwagger ? document.swaggerObject.definitions : document.openapiObject.components?.schemas)
  if (!isSwagger && !document.openapiObject.openapi?.startsWith('3.0')) return { schema, url }
  // @fastify/swagger may change the name of a schema. Its title is its `$id`, or what its author has written.
  const text = JSON.stringify(schema)
  const ours = Object.keys(schemas).filter(name => [name, schemas[name]?.title].some(title => title !== schemaName(title) || text.includes(`"${schemaId(String(title))}"`)))
  for (const [name, given] of Object.entries(schemas)) {
    // The definitions in a schema have its name before theirs.
    if (ours.some(own => name === own || name.startsWith(`${own}-`))) schemas[name] = olderSchema(given, isSwagger ? '2.0' : '3.0')
  }
  return { schema: isSwagger ? JSON.parse(text, (key, value) => key === 'examples' ? undefined : value) : schema, url }
}

/** Header names are in lower case in a request. The description of a header says what it must be. */
function withLowerCaseNames ({ properties, required = [], ...schema }: TObject) {
  const named = Object.entries(properties).map(([name, property]) => [name.toLowerCase(), { ...property, expected: property.description }])
  return { ...schema, properties: Object.fromEntries(named), required: required.map(name => name.toLowerCase()) } as TObject
}
