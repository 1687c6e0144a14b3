import { details, ErrorBody, InvalidRequest, type Problem } from '../../schemas/errors.js'
import { schemaName } from '../../schemas/fields.js'
import { errorBody, invalid } from '../http/errors.js'

/** The parts of an operation in an OpenAPI document that are used here. */
export interface Operation {
  operationId?: string
  tags?: string[]
  security?: object[]
  parameters?: { in: string, name: string, schema: { type?: string, minimum?: number, examples?: unknown[] }, example?: unknown }[]
  requestBody?: Body
  responses: Record<string, Body>
}

interface Body {
  headers?: Record<string, unknown>
  content?: Record<string, { schema: Schema, example?: unknown }>
}

/** A schema in an OpenAPI document. */
interface Schema {
  $ref?: string
  description?: string
  examples?: unknown[]
  required?: string[]
  items?: Schema
}

/** The components of an OpenAPI document, by name. */
export type Schemas = Record<string, Schema>

/** `default` in the document stands for the responses of Node and Fastify to invalid HTTP. */
const exampleDetails: Record<string, string> = { ...details, default: details[431] }

/** Adds an example to every body that is a component, because @fastify/swagger drops what is next to a `$ref`. */
export function addExamples (operation: Operation, schemas: Schemas) {
  const { parameters = [], requestBody, responses } = operation
  const inPath = parameters.find(parameter => parameter.in === 'path' && parameter.schema.type === 'integer')
  const required = schemas[componentOf(requestBody)]?.required ?? []

  for (const [status, body] of Object.entries({ ...responses, request: requestBody })) {
    const example = exampleOf(componentOf(body), status)
    for (const media of Object.values(body?.content ?? {})) if (example) media.example = example
  }

  // Swagger UI fills the example of a parameter in, but these are optional, and the example of an Idempotency-Key fits only one request.
  for (const parameter of parameters.filter(parameter => parameter.in !== 'path' && parameter.example !== undefined)) {
    parameter.schema.examples = [parameter.example]
    delete parameter.example
  }

  function exampleOf (component: string, status: string) {
    if (schemaName(component) === schemaName(ErrorBody.$id)) return { detail: exampleDetails[status] }
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

/** The name of the component that a body consists of. */
function componentOf (body?: Body) {
  const [media] = Object.values(body?.content ?? {})
  return nameOf(media?.schema)
}

/** The name of the component that a schema refers to. */
export function nameOf (schema?: Schema) {
  return String(schema?.$ref?.split('/').at(-1))
}
