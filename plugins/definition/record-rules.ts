import type { TObject, TSchema } from '@sinclair/typebox'
import { pointer, type ValueProblem } from '../../schemas/error-body.js'
import { invalid } from '../http/errors.js'
import { checkerOf } from '../http/validation.js'
import { timestamps, type AnyRecord } from '../stores/store.js'
import { withOptional } from './record-schemas.js'

/** The rules for the records of a collection, wherever they come from. Each function throws a 400. */
export type RecordRules = ReturnType<typeof recordRules>

export function recordRules (schema: TObject) {
  // The store sets the times.
  const closed: TSchema = withOptional({ ...schema, additionalProperties: false }, timestamps)
  // Compiling them takes time, and many collections need none.
  const checkerOfChanged = once(() => checkerOf(closed))
  const checkerOfNew = once(() => checkerOf(withOptional(closed, ['id']), { useDefaults: true }))

  return {
    /** Checks a new record or several, adds their defaults, and removes fields that are not in the schema. */
    checkNew<T extends object> (given: T): T {
      refuseIf(Array.isArray(given) ? problemsOfEach(given) : checkerOfNew()(given))
      return given
    },

    /** Checks a changed record. It keeps the fields of a newer release, which this one does not know. */
    checkChanged (current: AnyRecord, changed: AnyRecord): AnyRecord {
      const unknown = Object.entries(current).filter(([name]) => !Object.hasOwn(schema.properties, name))
      refuseIf(checkerOfChanged()(changed))
      return { ...Object.fromEntries(unknown), ...changed }
    }
  }

  function problemsOfEach (records: object[]) {
    const problems = records.flatMap((record, n) =>
      (checkerOfNew()(record) ?? []).map(({ path, message }) => ({ path: pointer(n) + path, message })))
    return problems.length > 0 ? problems : undefined
  }
}

/** Returns a function that makes something when it is first needed. */
function once<T> (make: () => T) {
  let made: T | undefined
  return function whenNeeded () {
    made ??= make()
    return made
  }
}

function refuseIf (problems?: ValueProblem[]) {
  if (problems) throw invalid('body', problems)
}
