import type pg from 'pg'
import { again, batch, Failure, inParts } from '../batch.js'
import { rejection, StoreUnavailableError } from '../errors.js'
import type { Row } from '../sql/table.js'
import type { HasId } from '../store.js'
import { isConflict, type conflictFinder } from './conflicts.js'
import { codeOf } from './errors.js'
import type { postgresTable } from './statements.js'

/** A call of `change`, with the row that the last attempt could not change, although no other transaction had changed it, and whether that was to be removed. */
type Change<T extends HasId> = { id: number, change (current: string): T | undefined, deadline: number, tried?: Row, isRemoval?: boolean }

/** What changes of a collection need: its table, the first rows with some ids, a function that writes, and what finds conflicts. */
interface Needs<T extends HasId> extends Pick<ReturnType<typeof conflictFinder<T>>, 'conflictOf' | 'lookUp'> {
  table: ReturnType<typeof postgresTable<T>>
  firstRows (ids: number[]): Promise<(Row | undefined)[]>
  write (statement: () => pg.QueryConfig): Promise<pg.QueryResult<Row>>
  timeout: number
}

/** Returns a function that combines changes into batches. */
export function changesInOrder<T extends HasId> ({ table, firstRows, write, conflictOf, lookUp, timeout }: Needs<T>) {
  /** How long the last transaction with changes took for a record, in milliseconds. */
  let pace = 0

  return batch(async (calls: Change<T>[]) => {
    const delayed = new Set<number>() // the ids of calls that must be repeated, before others in the next parts
    return inParts(calls, async function changePart (part) {
      const outcomes = await changeAll(part, delayed)
      for (const [n, { id }] of part.entries()) if (outcomes[n] === again) delayed.add(id)
      return outcomes
    }, (part, error) => conflictsInChanges(part, delayed, error))
  }, { keyOf: ({ id }: Change<T>) => id })

  /** Applies the calls for each record in order, and writes the result once. Calls that must be repeated, and those after them, have the outcome `again`. */
  async function changeAll (calls: Change<T>[], delayed: Set<number>) {
    const states = await statesOf(calls)
    const outcomes = calls.map(call => apply(call, states.get(call.id), delayed))
    const changed = [...states.values()].filter(state => state !== undefined).filter(({ isChanged }) => isChanged)
      .slice(0, Math.max(1, timeout / 4 / pace)) // the others are repeated, so that slow triggers do not exceed the timeout
    if (changed.length === 0) return outcomes
    const versions = [-3, -2].map(n => changed.map(({ row }) => row.at(n)))
    const values = [...table.columnsOf(changed), ...versions, changed.map(({ record }) => !record)]
    const deadline = Math.min(...changed.map(({ deadline }) => deadline))
    const began = Date.now()
    const paceOf = () => (Date.now() - began) / changed.length
    // The server gives up a little earlier, so that it does not make a change that has been answered.
    const written = await write(() => ({ ...table.change, values: [...values, Math.round(0.9 * (deadline - Date.now()))] })).catch((error: Error) => {
      pace = Math.max(pace, paceOf()) // it would have taken longer
      if (codeOf(error.cause) !== '25P04') throw error
    })
    if (written) pace = paceOf()
    const isWritten = new Map(written?.rows.map(([position, isWritten]) => [position, isWritten]))
    return calls.map((call, n) => {
      const state = states.get(call.id)
      if (!state?.isChanged || isWritten.get(state.row.at(-3))) return outcomes[n]
      call.tried = isWritten.has(state.row.at(-3)) ? state.row : undefined
      return again
    })
  }

  /** The conflicts of calls that the database has rejected. A call that conflicts changes nothing, so the next ones get the record as it was. */
  async function conflictsInChanges (calls: Change<T>[], delayed: Set<number>, error: unknown) {
    if (!isConflict(error)) return []
    if (calls.length === 1) return [await conflictOf(error, calls[0]?.isRemoval)]
    const states = await statesOf(calls)
    const stepOf = (call: Change<T>, state: ReturnType<typeof stateOf>) => {
      const before = state?.json
      return typeof apply(call, state, delayed) === 'string' && state ? { before: JSON.parse(String(before)), position: state.row.at(-3), record: state.record } : undefined
    }
    const copies = new Map([...states].map(([id, state]) => [id, state && { ...state }]))
    const find = await lookUp(calls.flatMap(call => stepOf(call, copies.get(call.id)) ?? []))
    return calls.map(call => {
      const state = states.get(call.id)
      const before = state && { ...state }
      const step = stepOf(call, state)
      const conflict = step && find(step)
      if (conflict) states.set(call.id, before)
      return conflict
    })
  }

  async function statesOf (calls: Change<T>[]) {
    const ids = [...new Set(calls.map(({ id }) => id))]
    const rows = await firstRows(ids)
    return new Map(ids.map((id, n) => [id, stateOf(rows[n])]))
  }

  /** A record while calls are applied to it. Without a `record`, it is removed. */
  function stateOf (row?: Row) {
    return row && { row, json: table.encodeRow(row), isChanged: false, record: undefined as T | undefined, deadline: Infinity }
  }

  /** Applies a call to a record, after others. The result is valid if the record is written. */
  function apply (call: Change<T>, state: ReturnType<typeof stateOf>, delayed: Set<number>) {
    if (call.deadline < Date.now()) return new Failure(new StoreUnavailableError()) // it has been answered
    if (delayed.has(call.id) || (state?.isChanged && !state.record)) return again // it is for the next record with this id
    if (!state) return
    try {
      if (isHidden(state.row, call.tried)) throw rejection()
      const record = call.change(state.json)
      call.isRemoval = !record
      if (record) state.json = table.encode(table.checkText(record))
      Object.assign(state, { record, isChanged: true, deadline: Math.min(state.deadline, call.deadline) })
      return state.json
    } catch (error) {
      return new Failure(error)
    }
  }
}

/** Returns whether nobody has changed or held a row since the last attempt to change it. Then row security does not allow the change. */
function isHidden (row: Row, tried?: Row) {
  return row.at(-1) === '0' && String(row.slice(-3)) === String(tried?.slice(-3))
}
