import type { ErrorObject } from 'ajv'
import { pointer } from './walk.js'

const typeNames: Record<string, string> = { array: 'an array', boolean: 'true or false', integer: 'an integer', null: 'null', object: 'an object' }

/** Describes what a value must be: what its schema has as `expected`, if it must match a pattern, a format or a function. */
export function explain (error: ErrorObject): string {
  const { keyword, params, message = '', schema, parentSchema: { expected } = {} } = error
  switch (keyword) {
    case 'required': return 'is required'
    case 'type': return `must be ${Array.isArray(params.type) ? params.type.map(named).join(' or ') : named(params.type)}`
    case 'minimum': return `must be at least ${params.limit}`
    case 'maximum': return `must be at most ${params.limit}`
    case 'enum': return `must be one of ${params.allowedValues.slice(0, maxValues).map(shown).join(', ')}${params.allowedValues.length > maxValues ? ', …' : ''}`
    case 'isAmong': return explain({ ...error, keyword: 'enum', params: { allowedValues: schema } })
    case 'const': return `must be ${shown(params.allowedValue)}`
    case 'minLength': return params.limit === 1 ? 'must not be empty' : message.replace('NOT', 'not')
    case 'additionalProperties': case 'unevaluatedProperties': return 'is not a known field'
    case 'anyOf': case 'oneOf': return 'must match one of the allowed schemas'
    case 'dependentRequired': return `needs ${params.missingProperty}`
    case 'format': return expected ? `must be ${expected}` : `must match the format ${params.format}`
    case 'pattern': case 'is': return expected ? `must be ${expected}` : message
    default: return message.replace('NOT', 'not')
  }
}

function named (type: string) {
  return typeNames[type] ?? `a ${type}`
}

/** A list of more values is cut. The document has all of them. */
const maxValues = 20

function shown (value: unknown) {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** The problem of a value, with a JSON Pointer to it. The `field` is its place in the schema, for the log. */
export interface Problem {
  path: string
  message: string
  field?: string
}

/** The first errors are enough for a person, and comparing them takes little time. */
const maxErrors = 300

/** The longest path or message, and that of all together. In JSON, a character can have six bytes, and a problem is in a response twice. */
const [maxLength, maxTotal] = [256, 4000]

/** The problems of a value, one for each place that is wrong. */
export function problemsOf (errors: ErrorObject[] | null | undefined): Problem[] {
  const first = (errors ?? []).slice(0, maxErrors)
  const unions = first.filter(({ keyword }) => keyword === 'anyOf' || keyword === 'oneOf')
  const problems = first.filter(error => isProblem(error, first, unions))
  // Unions in unions can be alternatives of each other. The last error is that of the outer one.
  return firstOf((problems.length > 0 ? problems : first.slice(-1)).map(problemOf))
}

/** The first problems, up to their total length. */
export function firstOf (problems: Iterable<Problem>) {
  const first: Problem[] = []
  let length = 0
  for (const problem of problems) {
    length += problem.path.length + problem.message.length
    if (length > maxTotal) break
    first.push(problem)
  }
  return first
}

function problemOf (error: ErrorObject): Problem {
  const { keyword, instancePath, params, propertyName, schemaPath } = error
  // Ajv reports a missing or unknown property, and the name of a property, at its parent.
  const property = propertyName ?? (keyword === 'required' ? params.missingProperty : params.additionalProperty ?? params.unevaluatedProperty)
  return {
    path: shortened(property === undefined ? instancePath : instancePath + pointer(property)),
    message: shortened(propertyName === undefined ? explain(error) : `is a name that ${explain(error)}`),
    // (The path in the value can contain keys that the client has chosen.)
    get field () {
      return [...Array.from(schemaPath.matchAll(/\/properties\/([^/]+)/g), ([, name]) => name), params.missingProperty].filter(Boolean).join('/')
    }
  }
}

export function shortened (text: string, length = maxLength) {
  return text.length > length ? `${text.slice(0, length).toWellFormed()}…` : text
}

/** Returns whether an error is a problem of its own: not one of a wrong type, which has an error, and not one of an alternative of a union. */
function isProblem (error: ErrorObject, all: ErrorObject[], unions: ErrorObject[]) {
  const { keyword, instancePath } = error
  if (keyword === 'if' || keyword === 'propertyNames') return false
  if ((keyword === 'const' || keyword === 'enum') && all.some(other => other.keyword === 'type' && other.instancePath === instancePath)) return false
  return !unions.some(union => isAlternative(error, union))
}

/** Returns whether an error is about one of the alternatives of a union, which has an error of its own. */
function isAlternative ({ instancePath, schemaPath }: ErrorObject, union: ErrorObject) {
  if (!instancePath.startsWith(union.instancePath) || !['', '/'].includes(instancePath.charAt(union.instancePath.length))) return false
  const parent = union.schemaPath.slice(0, union.schemaPath.lastIndexOf('/') + 1)
  return !schemaPath.startsWith(parent) || schemaPath.startsWith(`${union.schemaPath}/`)
}
