import { AsyncResource } from 'node:async_hooks'
import { StoreUnavailableError } from './store.js'

/** What makes up one group at most: so many calls, or calls of so many bytes. */
const batchCalls = 64
const batchBytes = 1024 * 1024

interface Call<In, Out> {
  input: In
  resolve (output: Out): void
  reject (error: unknown): void
  context: AsyncResource
}

/**
 * Has calls that come together done together. So many groups may be under way at once; the calls that arrive
 * meanwhile make up the next one. A call fails alone where its outcome is an error.
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

  /** Waits for the calls that the same turn of the event loop brings. */
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
      // In the async context of its first call, so that a trace shows the statement under a request that it serves.
      const [{ context }] = group as [Call<In, Out>]
      const outcomes = await context.runInAsyncScope(work, undefined, group.map(({ input }) => input))
      for (const [n, { resolve, reject }] of group.entries()) {
        const outcome = outcomes[n]
        if (outcome instanceof Error) reject(outcome)
        else resolve(outcome as Out)
      }
    } catch (error) {
      // Those who wait have waited for this engine already; they would not fare better, only later.
      const failed = error instanceof StoreUnavailableError ? group.concat(waiting.splice(0)) : group
      for (const { reject } of failed) reject(error)
    }
    idle++
    startSoon()
  }

  /** How many of those who wait make up the next group; one that is too large makes one alone. */
  function nextSize () {
    let bytes = 0
    const last = waiting.findIndex(({ input }, n) => n === batchCalls || ((bytes += sizeOf(input)) > batchBytes && n > 0))
    return last < 0 ? waiting.length : last
  }
}
