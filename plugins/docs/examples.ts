import type { TSchema } from '@sinclair/typebox'
import { details, ErrorBody, InvalidRequest, missingScope, type Problem } from '../../schemas/errors.js'
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

/** Adds an example to every body that is a component, because @fastify/swagger drops what is next to a `$ref`. */
export function addExamples (operation: Operation, schemas: Record<string, TSchema>) {
  const { parameters = [], requestBody, responses, security = [] } = operation
  const [scope] = security.flatMap(schemes => Object.values(schemes).flat())
  const inPath = parameters.find(parameter => parameter.in === 'path' && parameter.schema.type === 'integer')
  const [requestMedia] = Object.values(requestBody?.content ?? {})
  const required = schemas[nameOf(requestMedia?.schema)]?.required ?? []

  for (const [status, body] of Object.entries({ ...responses, request: requestBody })) {
    for (const media of Object.values(body?.content ?? {})) {
      const example = exampleOf(nameOf(media.schema), status)
      if (example) media.example = example
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
    const example = schemas[component]?.examples?.[0]
    return Object.hasOwn(Object(example), 'id') && inPath?.example ? { ...Object(example), id: inPath.example } : example
  }

  /** The response to a request of this operation that is invalid in one place. */
  function invalidExample () {
    const limit = parameters.find(({ schema }) => schema.minimum !== undefined)
    if (required.length > 0) return invalidIn('body', `/${required.at(-1)}`, 'is required')
    if (inPath) return invalidIn('path', `/${inPath.name}`, 'must be an integer')
    if (limit) return invalidIn('query', `/${limit.name}`, `must be at least ${limit.schema.minimum}`)
    return invalidIn('request', '', 'must be well-formed HTTP')
  }
}

function invalidIn (part: Problem['in'], path: string, message: string) {
  return errorBody(invalid(part, [{ path, message }]), 400)
}

/** The name of the component that a schema refers to. */
export function nameOf (schema?: TSchema) {
  return String(schema?.$ref?.split('/').at(-1))
}
