import type { ErrorObject } from 'ajv'
import { pointer } from './walk.js'

const typeNames: Record<string, string> = { array: 'an array', boolean: 'true or false', integer: 'an integer', null: 'null', object: 'an object' }

/** Describes what a value must be: in the words of its schema, if it must match a pattern, a format or a function. */
export function explain ({ keyword, params, message = '', parentSchema: { expected, description } = {} }: ErrorObject) {
  const plain = message.replace('NOT', 'not')
  switch (keyword) {
    case 'required': return 'is required'
    case 'type': return `must be ${[params.type].flat().map(type => typeNames[type] ?? `a ${type}`).join(' or ')}`
    case 'minimum': return `must be at least ${params.limit}`
    case 'maximum': return `must be at most ${params.limit}`
    case 'enum': return `must be one of ${params.allowedValues.map(shown).join(', ')}`
    case 'const': return `must be ${shown(params.allowedValue)}`
    case 'minLength': return params.limit === 1 ? 'must not be empty' : plain
    case 'additionalProperties': case 'unevaluatedProperties': return 'is not a known field'
    case 'anyOf': case 'oneOf': return 'must match one of the allowed schemas'
    case 'dependentRequired': return `needs ${params.missingProperty}`
    case 'format': return expected ? `must be ${expected}` : `must match the format ${params.format}`
    case 'pattern': case 'is': return expected ?? description ? `must be ${expected ?? description}` : plain
    default: return plain
  }
}

function shown (value: unknown) {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** A long array can have an error for each of its values. The first ones are enough for a person, and comparing them takes little time. */
const maxErrors = 300

/** The problems of a value, one for each place that is wrong, with a JSON Pointer to it. */
export function problemsOf (errors: ErrorObject[] | null | undefined) {
  return (errors ?? []).slice(0, maxErrors).filter(isProblem).map(error => ({
    path: placeOf(error),
    message: error.propertyName === undefined ? explain(error) : `is a name that ${explain(error)}`,
    get field () { return fieldOf(error) }
  }))
}

/** Returns whether an error is a problem of its own: not one of a wrong type, which has an error, and not one of an alternative of a union. */
function isProblem (error: ErrorObject, _index: number, all: ErrorObject[]) {
  const { keyword, instancePath } = error
  if (keyword === 'if' || keyword === 'propertyNames') return false
  if ((keyword === 'const' || keyword === 'enum') && all.some(other => other.keyword === 'type' && other.instancePath === instancePath)) return false
  return !all.some(union => (union.keyword === 'anyOf' || union.keyword === 'oneOf') && isAlternative(error, union))
}

/** The place in the schema, for the log. (The path in the value can contain keys that the client has chosen.) */
function fieldOf ({ schemaPath, params }: ErrorObject) {
  return [...Array.from(schemaPath.matchAll(/\/properties\/([^/]+)/g), ([, name]) => name), params.missingProperty].filter(Boolean).join('/')
}

/** Ajv reports a missing or unknown property, and the name of a property, at its parent. */
function placeOf ({ keyword, instancePath, params, propertyName }: ErrorObject) {
  const property = propertyName ?? { required: params.missingProperty, additionalProperties: params.additionalProperty, unevaluatedProperties: params.unevaluatedProperty }[keyword]
  return property === undefined ? instancePath : instancePath + pointer(property)
}

/** Returns whether an error is about one of the alternatives of a union, which has an error of its own. */
function isAlternative ({ instancePath, schemaPath }: ErrorObject, union: ErrorObject) {
  const parent = union.schemaPath.slice(0, union.schemaPath.lastIndexOf('/') + 1)
  const isBeside = schemaPath.startsWith(parent) && !schemaPath.startsWith(`${union.schemaPath}/`)
  return !isBeside && (instancePath === union.instancePath || instancePath.startsWith(`${union.instancePath}/`))
}
