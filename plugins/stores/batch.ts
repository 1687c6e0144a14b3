import { AsyncResource } from 'node:async_hooks'
import { StoreUnavailableError } from './errors.js'

/** Maximum number of calls in a batch, and of bytes. */
const batchCalls = 64
const batchBytes = 1024 * 1024

/** The outcome of a call that must be repeated. */
export const again = Symbol('again')

/** The outcome of a call that has failed, because a host can throw anything, not only an error. */
export class Failure {
  constructor (readonly reason: unknown) {}
}

interface Call<In, Out> {
  input: In
  size: number
  resolve (output: Out): void
  reject (error: unknown): void
  context: AsyncResource
  repeats: number
}

/**
 * Combines calls that arrive together into batches. At most `concurrency` batches are in progress; calls that arrive
 * meanwhile are in the next one. If `work` returns a failure for a call, only this call fails. If it returns `again`, the call
 * is repeated after a pause, which grows, and other calls with the same key wait for it, so that they stay in order.
 */
export function batch<In, Out> (
  work: (inputs: In[]) => Promise<(Out | Failure | typeof again)[]>,
  { concurrency = 1, sizeOf = (_input: In): number => 0, keyOf = (_input: In): unknown => undefined } = {}
) {
  let waiting: Call<In, Out>[] = []
  /** The calls that wait for the end of a pause, by key. */
  const paused = new Map<unknown, Call<In, Out>[]>()
  let idle = concurrency
  let due = false

  return (input: In) => new Promise<Out>((resolve, reject) => {
    waiting.push({ input, size: sizeOf(input), resolve, reject, context: new AsyncResource('Batch'), repeats: 0 })
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
    const group = nextGroup()
    if (group.length === 0) return
    idle--
    startSoon()
    try {
      // The batch runs in the async context of its first call, so that the statement appears in the trace of a request.
      const [{ context }] = group as [Call<In, Out>]
      const outcomes = await context.runInAsyncScope(work, undefined, group.map(({ input }) => input))
      for (const [n, call] of group.entries()) {
        const outcome = outcomes[n]
        if (outcome instanceof Failure) call.reject(outcome.reason)
        else if (outcome === again) repeat(call)
        else call.resolve(outcome as Out)
      }
    } catch (error) {
      // Calls that are waiting would fail too, only later.
      const failed = error instanceof StoreUnavailableError ? group.concat(waiting.splice(0)) : group
      for (const { reject } of failed) reject(error)
    }
    idle++
    startSoon()
  }

  /** Repeats a call after a pause, before the calls that are waiting then, and after those with the same key that are in the pause already. */
  function repeat (call: Call<In, Out>) {
    const key = keyOf(call.input)
    const calls = paused.get(key) ?? []
    if (calls.push(call) > 1) return
    paused.set(key, calls)
    setTimeout(function resume () {
      paused.delete(key)
      waiting = [...calls, ...waiting]
      startSoon()
    }, Math.random() * 10 * ++call.repeats)
  }

  /** Removes the calls of the next batch from those that are waiting. A call that is too large has its own batch. */
  function nextGroup () {
    const group: Call<In, Out>[] = []
    let [visited, bytes] = [0, 0]
    for (const call of waiting) {
      const isPaused = paused.has(keyOf(call.input))
      if (group.length === batchCalls || (!isPaused && (bytes += call.size) > batchBytes && group.length > 0)) break
      if (isPaused) repeat(call)
      else group.push(call)
      visited++
    }
    waiting.splice(0, visited)
    return group
  }
}

/**
 * Works on all entries at once. If this fails, and not because of an outage, only those at fault fail: those with a conflict,
 * which a function can find at once, or those that are left when the entries are split.
 */
export async function inParts<E, R> (entries: E[], work: (part: E[]) => Promise<R[]>, conflictsIn?: (part: E[], error: unknown) => Promise<(Error | undefined)[]>): Promise<(R | Failure)[]> {
  if (entries.length === 0) return []
  try {
    return await work(entries)
  } catch (error) {
    if (error instanceof StoreUnavailableError) throw error
    const found = await conflictsIn?.(entries, error) ?? []
    if (found.some(Boolean)) {
      const others = await inParts(entries.filter((_, n) => !found[n]), work, conflictsIn)
      return entries.map((_, n) => found[n] ? new Failure(found[n]) : others.shift() as R | Failure)
    }
    if (entries.length === 1) return [new Failure(error)]
    const half = Math.ceil(entries.length / 2)
    return [...await inParts(entries.slice(0, half), work, conflictsIn), ...await inParts(entries.slice(half), work, conflictsIn)]
  }
}

/** Makes calls wait while so many are in progress. A call that has waited too long fails. The time that it waits is a part of its time. */
export function limited (max: number, timeout: number) {
  let free = max
  const waiting: (() => void)[] = []

  return async function whenFree<R> (work: (deadline: number) => Promise<R>) {
    const deadline = Date.now() + timeout
    if (free-- <= 0) await new Promise<void>(resolve => { waiting.push(resolve) })
    try {
      if (Date.now() > deadline) throw new StoreUnavailableError()
      return await work(deadline)
    } finally {
      free++
      waiting.shift()?.()
    }
  }
}
