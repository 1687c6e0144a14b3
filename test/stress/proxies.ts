import { spawn, type ChildProcess } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { newFolder } from '../support/folder.js'
import { ownPaths, startNginx as startNginxWith } from '../support/nginx.js'
import { freePort } from '../support/postgres.js'
import { until } from '../support/until.js'
import { isReady, type Scope } from './service.js'

export type Proxy = Awaited<ReturnType<typeof proxies[keyof typeof proxies]>>

/** Load balancers in front of instances. Each names the instance in a header of the response. */
export const proxies = { nginx: startNginx, haproxy: startHaproxy }

/** Starts nginx with the configuration in compose.yaml, with other addresses, and its health check. */
async function startNginx (scope: Scope, instances: string[]) {
  const configured = /content: \|\n([^]+)$/.exec(readFileSync('compose.yaml', 'utf8'))?.[1] ?? ''
  const { nginx, port, log } = await startNginxWith(scope, (port, folder) => configured.replaceAll('$$', '$')
    .replace(/resolver .*/, `${ownPaths(folder)} add_header X-Instance $upstream_addr always;`)
    .replace(/server service:3000 resolve(.*)/, (_, settings) => instances.map(instance => `server ${instance}${settings}`).join('\n'))
    .replace('listen 80', `listen 127.0.0.1:${port}`))
  const url = await ready(port, nginx)
  const stopping = new AbortController()
  scope.teardown(() => stopping.abort())
  let unready = 0
  checkHealth()
  return {
    url,
    /** How often it has stopped sending requests to an instance. */
    removals: (instance: string) => countOf(new RegExp(`temporarily disabled.*//${instance}/readyz`, 'g'), readFileSync(log, 'utf8')),
    /** How often its health check has failed. */
    unready: () => unready,
    /** nginx does not forward the header Expect. */
    statusOfExpectation: 200
  }

  /** Requests the readiness of each instance. */
  async function checkHealth () {
    while (!stopping.signal.aborted) {
      for (let n = 0; n < 9; n++) if (!await isReady(url)) unready++
      await sleep(500)
    }
  }
}

async function startHaproxy (scope: Scope, instances: string[]) {
  const folder = newFolder(scope)
  const port = await freePort()
  writeFileSync(`${folder}/haproxy.cfg`, `
    defaults
      mode http
      timeout connect 5s
      timeout client 60s
      timeout server 60s
      timeout check 60s
      retries 3
      option redispatch
      http-reuse always
    frontend public
      bind 127.0.0.1:${port}
      default_backend service
    backend service
      option httpchk GET /readyz
      http-check expect status 200
      http-response set-header X-Instance %s
      default-server check inter 500ms fall 2 rise 1
      ${instances.map(instance => `server ${instance} ${instance}`).join('\n      ')}\n`)
  const haproxy = spawn('haproxy', ['-db', '-f', `${folder}/haproxy.cfg`], { stdio: ['ignore', 'ignore', 'pipe'] })
  scope.teardown(() => haproxy.kill('SIGTERM'))
  let log = ''
  haproxy.stderr.on('data', chunk => { log += chunk })
  return {
    url: await ready(port, haproxy),
    removals: (instance: string) => countOf(new RegExp(`Server service/${instance} is DOWN`, 'g'), log),
    unready: () => 0,
    statusOfExpectation: 417
  }
}

async function ready (port: number, proxy: ChildProcess) {
  const url = `http://127.0.0.1:${port}`
  await until(() => {
    if (proxy.exitCode !== null) throw new Error(`${proxy.spawnfile} ended with ${proxy.exitCode}`)
    return isReady(url)
  })
  return url
}

function countOf (pattern: RegExp, text: string) {
  return text.match(pattern)?.length ?? 0
}
