import { StoreUnavailableError } from './store-errors.js'

/** Maximum number of calls in a batch, and of their records. */
const maxCalls = 64
const maxRecords = 1000

/** The outcome of a call that belongs into the next batch. */
export const again = Symbol('again')

/** The outcome of a call: a response, an error for this call, or `again`. */
export type Outcome = { response: string | undefined } | { error: unknown } | typeof again

/** The response of a call, or the error that it throws. */
export function outcomeOf (work: () => string | undefined): Outcome {
  try {
    return { response: work() }
  } catch (error) {
    return { error }
  }
}

interface Call<In> {
  input: In
  deadline: number
  resolve (response: string | undefined): void
  reject (error: unknown): void
}

interface BatchOptions<In> {
  /** Maximum time of a call, in milliseconds. Its caller does not wait longer. */
  timeout: number
  /** How many batches can be in progress. */
  concurrency?: number
  recordsIn? (input: In): number
}

/**
 * Combines the calls of a turn of the event loop into batches. Calls that arrive while a batch is in progress are in
 * the next one.
 */
export function batches<In> (work: (inputs: In[], deadline: number) => Promise<Outcome[]>, options: BatchOptions<In>) {
  const { timeout, concurrency = 1, recordsIn = () => 1 } = options
  let waiting: Call<In>[] = []
  let inProgress = 0
  let isDue = false

  return function call (input: In): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      waiting.push({ input, deadline: Date.now() + timeout, resolve, reject })
      startSoon()
    })
  }

  function startSoon () {
    if (isDue || inProgress === concurrency || waiting.length === 0) return
    isDue = true
    setImmediate(startNext)
  }

  async function startNext () {
    isDue = false
    inProgress++
    const calls = nextCalls()
    startSoon()
    await answer(calls)
    inProgress--
    startSoon()
  }

  function nextCalls () {
    const now = Date.now()
    // The callers of the others have had their answer: the time is over.
    waiting = waiting.filter(({ deadline }) => deadline > now)
    let records = 0
    const isTooMuch = ({ input }: Call<In>, n: number) => {
      records += recordsIn(input)
      return n === maxCalls || (records > maxRecords && n > 0)
    }
    const end = waiting.findIndex(isTooMuch)
    return waiting.splice(0, end === -1 ? waiting.length : end)
  }

  async function answer (calls: Call<In>[]) {
    const [first] = calls
    if (!first) return
    try {
      const outcomes = await work(calls.map(({ input }) => input), first.deadline)
      waiting = [...calls.filter((_, n) => outcomes[n] === again), ...waiting]
      for (const [n, call] of calls.entries()) settle(call, outcomes[n])
    } catch (error) {
      // The database has rejected one of them. The others succeed alone.
      const isRejected = calls.length > 1 && !(error instanceof StoreUnavailableError)
      if (isRejected) for (const call of calls) await answer([call])
      else for (const { reject } of calls) reject(error)
    }
  }
}

function settle<In> ({ resolve, reject }: Call<In>, outcome?: Outcome) {
  if (outcome === again || outcome === undefined) return
  if ('error' in outcome) reject(outcome.error)
  else resolve(outcome.response)
}
