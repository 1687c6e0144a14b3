import { AsyncResource } from 'node:async_hooks'
import { StoreUnavailableError } from './errors.js'

/** Maximum number of calls in a batch, and of bytes. */
const batchCalls = 64
const batchBytes = 1024 * 1024

interface Call<In, Out> {
  input: In
  resolve (output: Out): void
  reject (error: unknown): void
  context: AsyncResource
}

/**
 * Combines calls that arrive together into batches. At most `concurrency` batches are in progress; calls that arrive
 * meanwhile are in the next one. If `work` returns an error for a call, only this call fails.
 */
export function batch<In, Out> (
  work: (inputs: In[]) => Promise<(Out | Error)[]>,
  { concurrency = 1, sizeOf = (_input: In): number => 0 } = {}
) {
  const waiting: Call<In, Out>[] = []
  let idle = concurrency
  let due = false

  return (input: In) => new Promise<Out>((resolve, reject) => {
    waiting.push({ input, resolve, reject, context: new AsyncResource('Batch') })
    startSoon()
  })

  /** Waits for other calls of the same turn of the event loop. */
  function startSoon () {
    if (due || idle === 0 || waiting.length === 0) return
    due = true
    setImmediate(doNext)
  }

  async function doNext () {
    due = false
    idle--
    const group = waiting.splice(0, nextSize())
    startSoon()
    try {
      // The batch runs in the async context of its first call, so that the statement appears in the trace of a request.
      const [{ context }] = group as [Call<In, Out>]
      const outcomes = await context.runInAsyncScope(work, undefined, group.map(({ input }) => input))
      for (const [n, { resolve, reject }] of group.entries()) {
        const outcome = outcomes[n]
        if (outcome instanceof Error) reject(outcome)
        else resolve(outcome as Out)
      }
    } catch (error) {
      // Calls that are waiting would fail too, only later.
      const failed = error instanceof StoreUnavailableError ? group.concat(waiting.splice(0)) : group
      for (const { reject } of failed) reject(error)
    }
    idle++
    startSoon()
  }

  /** The number of waiting calls in the next batch. A call that is too large has its own batch. */
  function nextSize () {
    let bytes = 0
    const last = waiting.findIndex(({ input }, n) => n === batchCalls || ((bytes += sizeOf(input)) > batchBytes && n > 0))
    return last < 0 ? waiting.length : last
  }
}

/** Works on all entries at once. If this fails, and not because of an outage, it splits them, so that only those at fault fail. */
export async function inParts<E, R> (entries: E[], work: (part: E[]) => Promise<R[]>): Promise<(R | Error)[]> {
  try {
    return await work(entries)
  } catch (error) {
    if (error instanceof StoreUnavailableError) throw error
    if (entries.length === 1) return [error as Error]
    const half = Math.ceil(entries.length / 2)
    return [...await inParts(entries.slice(0, half), work), ...await inParts(entries.slice(half), work)]
  }
}

/** Makes calls wait while so many are in progress. A call that has waited too long fails. */
export function limited (max: number, timeout: number) {
  let free = max
  const waiting: (() => void)[] = []

  return async function whenFree<R> (work: () => Promise<R>) {
    const deadline = Date.now() + timeout
    if (free-- <= 0) await new Promise<void>(resolve => { waiting.push(resolve) })
    try {
      if (Date.now() > deadline) throw new StoreUnavailableError()
      return await work()
    } finally {
      free++
      waiting.shift()?.()
    }
  }
}
