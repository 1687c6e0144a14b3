import type { Test } from 'tap'
import { freePort } from '../support/postgres.js'
import { start, type How } from '../support/process.js'
import { until } from '../support/until.js'

/** A test, or another one that runs as part of it. A comment reports the progress. */
export type Scope = Pick<Test, 'teardown' | 'comment'>

export type Service = Awaited<ReturnType<typeof serve>>

/** Starts the built service without a log and waits until it is ready. */
export async function serve (scope: Scope, env: NodeJS.ProcessEnv = {}, how: How = {}) {
  const port = env.PORT ?? String(await freePort())
  const service = start(scope, { LOG_LEVEL: 'silent', ...env, PORT: port }, how)
  const url = `http://127.0.0.1:${port}`
  await until(async () => {
    if (service.process.exitCode !== null) throw new Error(`It ended: ${service.errors()}`)
    return isReady(url)
  })

  async function kill () {
    service.process.kill('SIGKILL')
    await service.exit
  }

  return { url, port, kill, process: service.process, exit: service.exit, errors: service.errors }
}

/** Whether a service is there and ready. */
export async function isReady (url: string) {
  return (await fetch(`${url}/readyz`).catch(() => undefined))?.ok === true
}

/** The seed of generated values. `TEST_SEED` repeats a failure. */
export function seedOf () {
  return process.env.TEST_SEED ? { seed: Number(process.env.TEST_SEED) } : {}
}
