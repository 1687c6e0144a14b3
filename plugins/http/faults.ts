import type { ErrorObject } from 'ajv'
import type { Fault } from '../../schemas/errors.js'

/** The parts of a request: their names in Fastify's routes and in our errors. */
export const parts = { body: 'body', params: 'path', querystring: 'query', headers: 'headers' } as const

const typeNames: Record<string, string> = { array: 'an array', boolean: 'true or false', integer: 'an integer', object: 'an object' }

/** Describes what a value must be. */
export function explain (error: ErrorObject) {
  const { keyword, params, message } = error
  switch (keyword) {
    case 'required': return 'is required'
    case 'type': return `must be ${typeNames[params.type] ?? `a ${params.type}`}`
    case 'minimum': return `must be at least ${params.limit}`
    case 'maximum': return `must be at most ${params.limit}`
    case 'enum': return `must be one of ${params.allowedValues.join(', ')}`
    case 'minLength': return params.limit === 1 ? 'must not be empty' : String(message)
    case 'dependencies': return `needs ${params.missingProperty}`
    default: return expectedBy(error) ?? String(message)
  }
}

/** The words of our schemas for a value that matches a pattern, a format or a function. */
function expectedBy ({ keyword, parentSchema }: ErrorObject) {
  if (!['pattern', 'format', 'is'].includes(keyword)) return
  const expected = parentSchema?.expected ?? parentSchema?.description
  return expected && `must be ${expected}`
}

/** Returns the place of a problem and its message. Ajv reports a missing property at its parent. */
export function fault (error: ErrorObject) {
  const { keyword, instancePath, params } = error
  return {
    path: keyword === 'required' ? `${instancePath}/${params.missingProperty}` : instancePath,
    message: explain(error)
  }
}

/**
 * Returns the `detail` and the problems of a request that a host has rejected with 400. The message of its own
 * `schemaErrorFormatter` stays as it is.
 */
export function hostFaults ({ message, validation, validationContext }: Rejection) {
  if (!validation) return { detail: message || 'Bad Request', errors: [{ in: 'request', path: '', message }] satisfies Fault[] }
  const faults = validation.map(fault)
  const isOfFastify = message === textOf(validation.map(({ instancePath, message }) => ({ path: instancePath, message })))
  return {
    detail: isOfFastify ? textOf(faults) : message,
    errors: faults.map(fault => ({ in: parts[validationContext as keyof typeof parts], ...fault }))
  }

  function textOf (faults: { path: string, message?: string }[]) {
    return faults.map(({ path, message }) => `${validationContext}${path} ${message}`).join(', ')
  }
}

interface Rejection {
  message: string
  validation?: ErrorObject[]
  validationContext?: string
}
