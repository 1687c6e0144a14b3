import type { FastifyBaseLogger } from 'fastify'
import type { MaybePromise } from './store.js'

/** How often an unavailable engine is checked, in milliseconds. */
const interval = 1000

/** Logs an outage of an engine once when it starts, with its cause, and once when it ends. */
export function logOutages (log: Pick<FastifyBaseLogger, 'info' | 'warn'>) {
  let timer: NodeJS.Timeout | undefined
  let hasFailed = false

  return {
    /** Records a failure and checks the engine until it works and nothing has failed since the previous check. */
    failed (cause: unknown, check: () => MaybePromise<void>) {
      hasFailed = true
      if (timer) return
      log.warn({ err: cause }, 'The database is unavailable')
      timer = setInterval(async function checkAgain () {
        const failedBefore = hasFailed
        hasFailed = false
        await Promise.resolve().then(check).catch(() => { hasFailed = true })
        if (timer === undefined || hasFailed || failedBefore) return
        stop()
        log.info('The database is available again')
      }, interval).unref()
    },

    stop
  }

  function stop () {
    clearInterval(timer)
    timer = undefined
  }
}
