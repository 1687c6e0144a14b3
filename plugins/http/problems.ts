import type { ErrorObject } from 'ajv'
import { maxProblems, pointer, type ValueProblem } from '../../schemas/error-body.js'

/** The longest path or message, in characters. */
const maxLength = 256

/** A list of more allowed values is cut. The document has all of them. */
const maxValues = 20

/** The first errors are enough for a person, and comparing them takes little time. */
const maxErrors = 300

const typeNames: Record<string, string> = {
  array: 'an array',
  boolean: 'true or false',
  integer: 'an integer',
  null: 'null',
  object: 'an object'
}

/** The problems of a value, one for each place that is wrong. */
export function problemsOf (errors: ErrorObject[] | null | undefined): ValueProblem[] {
  const first = (errors ?? []).slice(0, maxErrors)
  const unions = first.filter(({ keyword }) => keyword === 'anyOf' || keyword === 'oneOf')
  const own = first.filter(error => isProblem(error, first, unions))
  // Unions in unions can be alternatives of each other. The last error is that of the outer one.
  return (own.length > 0 ? own : first.slice(-1)).map(problemOf).slice(0, maxProblems)
}

/** Returns whether an error is a problem of its own: not a second one of a wrong type, nor one of an alternative. */
function isProblem (error: ErrorObject, all: ErrorObject[], unions: ErrorObject[]) {
  const { keyword, instancePath } = error
  if (keyword === 'if' || keyword === 'propertyNames') return false
  const hasWrongType = all.some(other => other.keyword === 'type' && other.instancePath === instancePath)
  if ((keyword === 'const' || keyword === 'enum') && hasWrongType) return false
  return !unions.some(union => isAlternative(error, union))
}

/** Returns whether an error is about one of the alternatives of a union, which has an error of its own. */
function isAlternative ({ instancePath, schemaPath }: ErrorObject, union: ErrorObject) {
  const isInside = instancePath === union.instancePath || instancePath.startsWith(`${union.instancePath}/`)
  if (!isInside) return false
  const parent = union.schemaPath.slice(0, union.schemaPath.lastIndexOf('/') + 1)
  return !schemaPath.startsWith(parent) || schemaPath.startsWith(`${union.schemaPath}/`)
}

function problemOf (error: ErrorObject): ValueProblem {
  const { instancePath, propertyName } = error
  const property = propertyName ?? propertyOf(error)
  const path = property === undefined ? instancePath : instancePath + pointer(property)
  const message = propertyName === undefined ? explain(error) : `is a name that ${explain(error)}`
  return { path: shortened(path), message: shortened(message) }
}

/** The missing or unknown property of an error. Ajv reports it at its parent. */
function propertyOf ({ keyword, params }: ErrorObject): string | undefined {
  if (keyword === 'required') return params.missingProperty
  return params.additionalProperty ?? params.unevaluatedProperty
}

type Parameters = Record<string, any>

/** What a value must be, by the keyword that it breaks. Other keywords have the message of Ajv. */
const messages: Record<string, (params: Parameters) => string | undefined> = {
  required: () => 'is required',
  type: ({ type }) => `must be ${[type].flat().map(typeName).join(' or ')}`,
  minimum: ({ limit }) => `must be at least ${limit}`,
  maximum: ({ limit }) => `must be at most ${limit}`,
  multipleOf: ({ multipleOf }) => `must be a multiple of ${multipleOf}`,
  uniqueItems: () => 'must not have duplicate items',
  enum: ({ allowedValues }) => `must be one of ${listed(allowedValues)}`,
  const: ({ allowedValue }) => `must be ${shown(allowedValue)}`,
  minLength: ({ limit }) => limit === 1 ? 'must not be empty' : undefined,
  additionalProperties: () => 'is not a known field',
  unevaluatedProperties: () => 'is not a known field',
  anyOf: () => 'must match one of the allowed schemas',
  oneOf: () => 'must match one of the allowed schemas',
  dependentRequired: ({ missingProperty }) => `needs ${missingProperty}`,
  format: ({ format }) => `must match the format ${format}`
}

/** Describes what a value must be. For a pattern or a format, that is what its schema has as `expected`. */
export function explain ({ keyword, params, message = '', parentSchema: { expected } = {} }: ErrorObject): string {
  if (expected && (keyword === 'pattern' || keyword === 'format')) return `must be ${expected}`
  return messages[keyword]?.(params) ?? message.replace('NOT', 'not')
}

function typeName (type: string) {
  return typeNames[type] ?? `a ${type}`
}

function listed (values: unknown[]) {
  const first = values.slice(0, maxValues).map(shown).join(', ')
  return values.length > maxValues ? `${first}, …` : first
}

function shown (value: unknown) {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

export function shortened (text: string, length = maxLength) {
  return text.length > length ? `${text.slice(0, length).toWellFormed()}…` : text
}
