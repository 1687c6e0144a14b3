/** An operation on the records with one id, which are a queue. A record is known by its unique name. */
export interface Operation {
  kind: 'append' | 'removeFirst' | 'update' | 'first' | 'all'
  id: number
  /** The record to append, or the new name of the first record. */
  name?: string
  /** When it was sent, and when its response came. Without a response, it may have taken effect at any later time, or never. */
  sent: number
  answered: number
  /** Whether a record was removed or updated, the first record, or all records, in order. */
  result?: boolean | string | string[]
}

/**
 * Returns whether operations on one id have results that they could have one after the other, each at some time between its
 * request and its response (Wing and Gong, with the memory of Lowe).
 */
function isLinearizable (operations: Operation[]) {
  const numbers = new Map(operations.map((operation, n) => [operation, n]))
  const seen = new Set<string>()
  return search(operations.toSorted((a, b) => a.sent - b.sent), [])

  function search (all: Operation[], queue: string[]): boolean {
    const left = withoutReads(all, queue)
    if (left.every(({ answered }) => answered === Infinity)) return true
    const situation = `${left.map(operation => numbers.get(operation))} ${queue}`
    if (seen.has(situation)) return false
    seen.add(situation)
    // Operations without a response come last, because most of them did not take effect.
    return nextOf(left).sort((a, b) => a.answered === b.answered ? 0 : a.answered - b.answered).some(operation => {
      const next = apply(operation, queue)
      return next !== undefined && search(left.filter(other => other !== operation), next)
    })
  }

  /** A read whose result fits now can always be the next operation, because it changes nothing. */
  function withoutReads (left: Operation[], queue: string[]): Operation[] {
    const reads = nextOf(left).filter(operation => isRead(operation) && apply(operation, queue))
    return reads.length === 0 ? left : withoutReads(left.filter(operation => !reads.includes(operation)), queue)
  }
}

/** The operations that can be the next one: those that were sent before the first of the others was answered. */
function nextOf (left: Operation[]) {
  const firstAnswer = Math.min(...left.map(({ answered }) => answered))
  return left.filter(({ sent }) => sent <= firstAnswer)
}

function isRead ({ kind }: Operation) {
  return kind === 'first' || kind === 'all'
}

/** The queue after an operation, or nothing if its result would be different. */
function apply ({ kind, name = '', result, answered }: Operation, queue: string[]): string[] | undefined {
  if (kind === 'append') return [...queue, name]
  if (kind === 'removeFirst' || kind === 'update') {
    if (answered !== Infinity && result !== (queue.length > 0)) return
    return kind === 'update' && queue.length > 0 ? queue.with(0, name) : queue.slice(1)
  }
  if (kind === 'first') return result === queue[0] ? queue : undefined
  return String(result) === String(queue) ? queue : undefined
}

/**
 * Returns the shortest violation that it finds: the operations up to the first response with which they are not
 * linearizable, without the reads that do not matter. It begins with short histories, because the time for a history that is
 * not linearizable grows exponentially.
 */
export function violationOf (operations: Operation[]) {
  const answers = operations.map(({ answered }) => answered).filter(Number.isFinite).sort((a, b) => a - b)
  const end = answers.find(time => !isLinearizable(until(operations, time)))
  if (end === undefined) return
  let shortest = until(operations, end)
  for (const operation of shortest) {
    const without = shortest.filter(other => other !== operation)
    if (isRead(operation) && !isLinearizable(without)) shortest = without
  }
  return shortest
}

/** The operations that were sent up to a time. Those that were answered later have no response yet. */
function until (operations: Operation[], time: number) {
  return operations.filter(({ sent }) => sent <= time)
    .map(operation => operation.answered <= time ? operation : { ...operation, answered: Infinity })
    .filter(operation => operation.answered !== Infinity || !isRead(operation))
}
