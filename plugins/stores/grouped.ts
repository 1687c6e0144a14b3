import { Unavailable } from './store.js'

/** The most calls that make up one group. */
const groupSize = 256

interface Call<In, Out> {
  input: In
  resolve (output: Out): void
  reject (error: unknown): void
}

/**
 * Has calls that come together done together. So many groups may be under way at once; the calls that arrive
 * meanwhile make up the next one. A call fails alone where its outcome is an error.
 */
export function grouped<In, Out> (work: (inputs: In[]) => Promise<(Out | Error)[]>, lanes = 1) {
  const waiting: Call<In, Out>[] = []
  let idle = lanes
  let due = false

  return (input: In) => new Promise<Out>((resolve, reject) => {
    waiting.push({ input, resolve, reject })
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
    const group = waiting.splice(0, groupSize)
    startSoon()
    try {
      const outcomes = await work(group.map(({ input }) => input))
      for (const [n, { resolve, reject }] of group.entries()) {
        const outcome = outcomes[n]
        if (outcome instanceof Error) reject(outcome)
        else resolve(outcome as Out)
      }
    } catch (error) {
      // Those who wait have waited for this engine already; they would not fare better, only later.
      if (error instanceof Unavailable) group.push(...waiting.splice(0))
      for (const { reject } of group) reject(error)
    }
    idle++
    startSoon()
  }
}
