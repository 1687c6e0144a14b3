import { StoreUnavailableError } from './errors.js'
import { again, type Outcome } from './facts.js'

/** Maximum number of calls in a batch, and of characters. */
const maxCalls = 64
const maxSize = 1024 * 1024

/** The error of a call that has waited too long. */
export function tooLate (timeout: number) {
  return new StoreUnavailableError(new Error(`The database did not answer within ${timeout} ms`))
}

interface Call<In> {
  input: In
  size: number
  deadline: number
  resolve (response: string | undefined): void
  reject (error: unknown): void
}

interface BatchOptions<In> {
  timeout: number
  /** How many batches can be in progress. */
  concurrency?: number
  sizeOf? (input: In): number
}

/**
 * Combines the calls of a turn of the event loop into batches. Calls that arrive while a batch is in progress are in
 * the next one. A call that has waited too long is unavailable.
 */
export function batches<In> (work: (inputs: In[], deadline: number) => Promise<Outcome[]>, options: BatchOptions<In>) {
  const { timeout, concurrency = 1, sizeOf = () => 0 } = options
  let waiting: Call<In>[] = []
  let inProgress = 0
  let isDue = false

  return (input: In) => new Promise<string | undefined>((resolve, reject) => {
    const timer = setTimeout(() => reject(tooLate(timeout)), timeout)
    waiting.push({
      input,
      size: sizeOf(input),
      deadline: Date.now() + timeout,
      resolve: response => { clearTimeout(timer); resolve(response) },
      reject: error => { clearTimeout(timer); reject(error) }
    })
    startSoon()
  })

  function startSoon () {
    if (isDue || inProgress === concurrency || waiting.length === 0) return
    isDue = true
    setImmediate(startNext)
  }

  async function startNext () {
    isDue = false
    const calls = nextCalls()
    if (calls.length === 0) return
    inProgress++
    startSoon()
    await answer(calls)
    inProgress--
    startSoon()
  }

  /** The first calls that wait and have time left. A call that is larger than a batch has its own. */
  function nextCalls () {
    const now = Date.now()
    waiting = waiting.filter(({ deadline }) => deadline > now)
    let size = 0
    const end = waiting.findIndex((call, n) => n === maxCalls || ((size += call.size) > maxSize && n > 0))
    return waiting.splice(0, end === -1 ? waiting.length : end)
  }

  async function answer (calls: Call<In>[]): Promise<void> {
    try {
      const [{ deadline }] = calls as [Call<In>]
      const outcomes = await work(calls.map(({ input }) => input), deadline)
      const rest = calls.filter((_, n) => outcomes[n] === again)
      waiting.unshift(...rest)
      calls.forEach((call, n) => settle(call, outcomes[n] as Outcome))
    } catch (error) {
      // The database has rejected one of them. The others succeed alone.
      const isRejected = calls.length > 1 && !(error instanceof StoreUnavailableError)
      if (isRejected) for (const call of calls) await answer([call])
      else for (const { reject } of calls) reject(error)
    }
  }

  function settle (call: Call<In>, outcome: Outcome) {
    if (outcome === again) return
    if ('error' in outcome) call.reject(outcome.error)
    else call.resolve(outcome.response)
  }
}
