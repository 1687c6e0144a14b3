import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { newFolder } from '../support/folder.js'
import { freePort, machineBinaries, user } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { until } from '../support/until.js'
import { startSwitch } from './history.js'
import type { Scope } from './service.js'

export type Node = Awaited<ReturnType<typeof startNode>>

/**
 * With the API v3 of etcd, Patroni before 3.0.3 lets a primary that was paused take the leader key from its successor, and
 * acknowledged writes are lost (https://github.com/patroni/patroni/pull/2689).
 */
const faulty = /patroni 3\.0\.[012]\b/

/** The reason to skip the cluster, if the machine does not have its programs. */
export function withoutCluster () {
  const hasPostgres = existsSync('/usr/lib/postgresql') && existsSync(`${machineBinaries()}/initdb`)
  return without('patroni') || without('etcd') || without('haproxy') || (!hasPostgres && 'PostgreSQL is not installed (Debian: apt-get install postgresql)')
}

/** Starts etcd, three nodes with deploy/patroni.yaml, and haproxy with deploy/haproxy.cfg. */
export async function startCluster (scope: Scope) {
  const folder = newFolder(scope)
  chmodSync(folder, 0o755)
  const isFaulty = faulty.test(execFileSync('patroni', ['--version'], { encoding: 'utf8' }))
  const [etcd, peers, port] = [await freePort(), await freePort(), await freePort()]
  run('etcd', [
    `--data-dir=${folder}/etcd`,
    ...['listen-client-urls', 'advertise-client-urls'].map(name => `--${name}=http://127.0.0.1:${etcd}`),
    ...['listen-peer-urls=', 'initial-advertise-peer-urls=', 'initial-cluster=default='].map(name => `--${name}http://127.0.0.1:${peers}`),
    ...isFaulty ? ['--enable-v2'] : []
  ])
  await until(async () => (await fetch(`http://127.0.0.1:${etcd}/health`).catch(() => undefined))?.ok === true)
  copyFileSync('deploy/patroni.yaml', `${folder}/patroni.yaml`)
  const nodes = await Promise.all(['node1', 'node2', 'node3'].map(name => startNode(scope, folder, name, etcd, isFaulty ? 'PATRONI_ETCD' : 'PATRONI_ETCD3')))
  await until(() => isComplete(nodes))

  const config = readFileSync('deploy/haproxy.cfg', 'utf8').replace('bind :5432', `bind 127.0.0.1:${port}`)
    .replace(/server (node(\d)) .*/g, (_, name, n) => `server ${name} ${nodes[n - 1]?.haproxyAddress}`)
  writeFileSync(`${folder}/haproxy.cfg`, config)
  run('haproxy', ['-db', '-f', `${folder}/haproxy.cfg`])
  return { nodes, url: `postgres://ada:open%20sesame@127.0.0.1:${port}/postgres` }

  function run (program: string, args: string[]) {
    const child = spawn(program, args, { stdio: 'ignore' })
    scope.teardown(() => child.kill('SIGKILL'))
  }
}

/** Starts Patroni. Other nodes and haproxy reach it through proxies that can be cut, and so does it reach etcd. */
async function startNode (scope: Scope, parent: string, name: string, etcd: number, setting: string) {
  const folder = `${parent}/${name}`
  mkdirSync(folder)
  if (user.uid) chownSync(folder, user.uid, user.gid)
  const [rest, port] = [await freePort(), await freePort()]
  const [toEtcd, toRest, toPort] = [await startSwitch(scope, etcd), await startSwitch(scope, rest), await startSwitch(scope, port)]
  const env = {
    ...process.env,
    HOME: folder,
    PATRONI_NAME: name,
    [`${setting}_HOST`]: `127.0.0.1:${toEtcd.port}`,
    [`${setting}_USE_PROXIES`]: 'true', // the address that etcd advertises is not that of the proxy
    PATRONI_RESTAPI_LISTEN: `127.0.0.1:${rest}`,
    PATRONI_RESTAPI_CONNECT_ADDRESS: `127.0.0.1:${toRest.port}`,
    PATRONI_POSTGRESQL_LISTEN: `127.0.0.1:${port}`,
    PATRONI_POSTGRESQL_CONNECT_ADDRESS: `127.0.0.1:${toPort.port}`,
    PATRONI_POSTGRESQL_DATA_DIR: `${folder}/data`,
    PATRONI_POSTGRESQL_BIN_DIR: machineBinaries(),
    PATRONI_SUPERUSER_USERNAME: 'ada',
    PATRONI_SUPERUSER_PASSWORD: 'open sesame',
    PATRONI_REPLICATION_USERNAME: 'replicator',
    PATRONI_REPLICATION_PASSWORD: 'another'
  }
  scope.teardown(kill)
  run()
  return { name, api: `http://127.0.0.1:${rest}`, haproxyAddress: `127.0.0.1:${toPort.port} port ${toRest.port}`, run, signal, kill, cut }

  function run () {
    spawn('patroni', [`${parent}/patroni.yaml`], { ...user, env, cwd: folder, stdio: 'ignore' })
  }

  /** Sends a signal to Patroni and PostgreSQL, whose processes have their working directory here. Returns their number. */
  function signal (name: NodeJS.Signals) {
    return readdirSync('/proc').filter(pid => {
      try {
        return readlinkSync(`/proc/${pid}/cwd`).startsWith(folder) && process.kill(Number(pid), name)
      } catch {
        return false // it is not a process, or it has ended
      }
    }).length
  }

  async function kill () {
    await until(() => signal('SIGKILL') === 0)
  }

  function cut () {
    const restores = [toEtcd, toRest, toPort].map(proxy => proxy.cut())
    return () => { for (const restore of restores) restore() }
  }
}

export async function primaryOf (nodes: Node[]) {
  const responses = await Promise.all(nodes.map(node => ask(node, '/primary')))
  return nodes.find((_, n) => responses[n]?.ok)
}

/** Returns whether a cluster has a primary, a synchronous standby and another standby, which follow it. */
export async function isComplete ([node]: Node[]) {
  const response = node && await ask(node, '/cluster')
  if (!response?.ok) return false
  const { members } = await response.json() as { members: { role: string, state: string, timeline: number }[] }
  return members.map(({ role }) => role).sort().join() === 'leader,replica,sync_standby' &&
    members.every(({ state, timeline }) => /^(running|streaming)$/.test(state) && timeline === members[0]?.timeline)
}

/** Asks the API of Patroni, which does not answer while it is paused. */
async function ask ({ api }: Node, path: string) {
  return fetch(api + path, { signal: AbortSignal.timeout(1000) }).catch(() => undefined)
}
