import { StoreUnavailableError } from './store-errors.js'
import type { MaybePromise } from './store.js'

export function tooLate () {
  return new StoreUnavailableError(new Error('The database did not answer in time'))
}

/** Fails if a result takes longer than this time, in milliseconds. */
export function within<T> (timeout: number, result: MaybePromise<T>): MaybePromise<T> {
  return timeout < Infinity && result instanceof Promise ? raced(timeout, result) : result
}

async function raced<T> (timeout: number, result: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(tooLate()), timeout)
  })
  try {
    return await Promise.race([result, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Returns a function that runs work one after the other. Work whose deadline is over does not start. */
export function oneAtATime () {
  let last: Promise<unknown> = Promise.resolve()
  return function next<R> (deadline: number, work: () => Promise<R>): Promise<R> {
    const result = last.then(() => {
      if (Date.now() > deadline) throw tooLate()
      return work()
    })
    last = result.catch(() => {})
    return result
  }
}
