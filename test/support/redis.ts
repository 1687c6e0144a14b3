import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'
import { newFolder } from './folder.js'
import { freePort } from './postgres.js'
import { until } from './until.js'

/** Starts a Redis server for a test, which can stop and kill it. */
export async function startRedis (t: Pick<Test, 'teardown'>) {
  const folder = newFolder(t)
  const port = await freePort()
  let server = await run()
  t.teardown(() => server.kill('SIGKILL'))
  return {
    url: `redis://127.0.0.1:${port}`,
    async run () { server = await run() },
    signal (name: NodeJS.Signals) { server.kill(name) },
    async stop () {
      server.kill('SIGKILL')
      await once(server, 'exit')
    }
  }

  async function run () {
    const server = spawn('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder],
      { stdio: 'ignore' })
    await once(server, 'spawn')
    await until(answers)
    return server
  }

  function answers () {
    return new Promise<boolean>(resolve => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false))
      socket.on('connect', () => socket.destroy())
    })
  }
}
