/** An operation on the records with one id, which are a queue. A record is known by its unique name. */
export interface Operation {
  kind: 'append' | 'removeFirst' | 'update' | 'first' | 'all'
  id: number
  /** The record to append, or the new name of the first record. */
  name?: string
  /** When it was sent, and when its response came. Without a response, it may have taken effect at any later time, or never. */
  sent: number
  answered: number
  /** It has no response, but at the time `answered` it has taken effect or never will. */
  isOver?: boolean
  /** Whether a record was removed or updated, the first record, or all records, in order. */
  result?: boolean | string | string[]
}

/** What may be the case at some time: the records, and the operations that were sent and have not taken effect. */
interface State {
  queue: string[]
  pending: Operation[]
}

/**
 * Returns the shortest violation that it finds: the operations up to the first response that is not possible, without the
 * reads that do not matter.
 */
export function violationOf (operations: Operation[]) {
  const end = firstViolation(operations)
  if (end === undefined) return
  let shortest = until(operations, end)
  for (const operation of shortest) {
    const shorter = without(shortest, operation)
    if (isRead(operation) && firstViolation(shorter) !== undefined) shortest = shorter
  }
  return shortest
}

/**
 * Returns the time of the first response that the operations could not have one after the other, each at some time between
 * its request and its response (just-in-time linearization, Lowe 2017). It keeps all states that are possible so far.
 */
function firstViolation (operations: Operation[]) {
  const numbers = new Map(operations.map((operation, n) => [operation, n]))
  const events = operations.flatMap(operation => [
    { time: operation.sent, operation, isResponse: false },
    { time: operation.answered, operation, isResponse: true }
  ]).filter(({ time }) => time < Infinity).sort((a, b) => a.time - b.time || Number(a.isResponse) - Number(b.isResponse))
  let states: State[] = [{ queue: [], pending: [] }]
  for (const { time, operation, isResponse } of events) {
    if (!isResponse) states = states.map(({ queue, pending }) => stateOf(queue, [...pending, operation]))
    else states = statesAfter(operation)
    if (states.length === 0) return time
  }

  /** The states in which an operation has taken effect, perhaps after others, or is over without an effect. */
  function statesAfter (operation: Operation) {
    const open = [...states, ...operation.isOver ? states.map(({ queue, pending }) => stateOf(queue, without(pending, operation))) : []]
    const seen = new Set<string>()
    const found: State[] = []
    for (const state of open) {
      const { queue, pending } = state
      const key = `${pending.map(other => numbers.get(other))} ${queue}`
      if (seen.has(key)) continue
      seen.add(key)
      if (!pending.includes(operation)) found.push(state)
      else {
        for (const next of pending) {
          const changed = apply(next, queue)
          if (changed) open.push(stateOf(changed, without(pending, next)))
        }
      }
    }
    return found
  }
}

/** A read whose result fits has taken effect. Nothing is lost with it, because it changes nothing. */
function stateOf (queue: string[], pending: Operation[]): State {
  return { queue, pending: pending.filter(operation => !isRead(operation) || !apply(operation, queue)) }
}

function without (operations: Operation[], operation: Operation) {
  return operations.filter(other => other !== operation)
}

function isRead ({ kind }: Operation) {
  return kind === 'first' || kind === 'all'
}

/** The queue after an operation, or nothing if its result would be different. */
function apply ({ kind, name = '', result, answered, isOver }: Operation, queue: string[]): string[] | undefined {
  if (kind === 'append') return [...queue, name]
  if (kind === 'removeFirst' || kind === 'update') {
    const hasResponse = answered < Infinity && !isOver
    if (hasResponse && result !== (queue.length > 0)) return
    return kind === 'update' && queue.length > 0 ? queue.with(0, name) : queue.slice(1)
  }
  if (kind === 'first') return result === queue[0] ? queue : undefined
  return String(result) === String(queue) ? queue : undefined
}

/** The operations that were sent up to a time. Those that were answered later have no response yet. */
function until (operations: Operation[], time: number) {
  return operations.filter(({ sent }) => sent <= time)
    .map(operation => operation.answered <= time ? operation : { ...operation, answered: Infinity })
    .filter(operation => operation.answered !== Infinity || !isRead(operation))
}
