import { deepStrictEqual, ok } from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { newFolder } from '../support/folder.js'
import { machineBinaries, user } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { until } from '../support/until.js'
import { collectionsFile, startSwitch, useInstances } from './history.js'
import { lastingPort } from './rolling.js'
import { serve, type Scope } from './service.js'

type Node = Awaited<ReturnType<typeof startNode>>

interface Member {
  role: string
  state: string
  timeline: number
}

/**
 * With the API v3 of etcd, Patroni before 3.0.3 lets a primary that was paused take the leader key from its successor, and
 * acknowledged writes are lost (https://github.com/patroni/patroni/pull/2689).
 */
const faulty = /patroni 3\.0\.[012]\b/

/** How long a primary is paused or cut off, in milliseconds. That is longer than `ttl` in deploy/patroni.yaml. */
const absence = 30_000

/** The reason to skip the cluster, if the machine does not have its programs. */
export function withoutCluster () {
  const hasPostgres = existsSync('/usr/lib/postgresql') && existsSync(`${machineBinaries()}/initdb`)
  return without('patroni') || without('etcd') || without('haproxy') || (!hasPostgres && 'PostgreSQL is not installed (Debian: apt-get install postgresql)')
}

/** Faults of the primary of a cluster. */
export const clusterFaults: Record<string, (primary: Node, standbys: Node[]) => Promise<void>> = {
  async 'is switched over as planned' ({ name, api }) {
    const response = await fetch(`${api}/switchover`, { method: 'POST', body: JSON.stringify({ leader: name }) })
    ok(response.ok, await response.text())
  },
  async 'is killed with kill -9' (primary, standbys) {
    await primary.kill()
    await until(() => hasPrimary(standbys))
    primary.run()
  },
  async 'is paused for 30 s' (primary) {
    primary.signal('SIGSTOP')
    await sleep(absence)
    primary.signal('SIGCONT')
  },
  async 'is cut off from the network for 30 s' (primary) {
    const restore = primary.cut()
    await sleep(absence)
    restore()
  }
}

/**
 * Causes a fault of the primary while clients use two instances of the service. Writes are sent again with the same
 * idempotency key until they are acknowledged: all are stored, once.
 */
export async function clusterFault (scope: Scope, happen: (primary: Node, standbys: Node[]) => Promise<void>) {
  const { url, nodes } = await startCluster(scope)
  const env = { DATABASE_URL: url, COLLECTIONS_FILE: collectionsFile(scope) }
  const instances = await Promise.all([1, 2].map(() => serve(scope, env)))
  const { more, check } = await useInstances(scope, instances, { clients: 6, pause: 300 })
  const { stop } = write(instances.map(({ url }) => url))
  await more(100)
  const [primary] = await primaries(nodes)
  if (!primary) throw new Error('There is no primary')
  const standbys = nodes.filter(node => node !== primary)
  scope.comment(`the primary ${primary.name} has its fault`)
  await happen(primary, standbys)
  await until(() => hasPrimary(standbys))
  await until(() => isComplete(nodes))
  await more(100)
  return { ...await stop(), ...await check() }
}

/** Clients that create items with idempotency keys. */
function write (urls: string[]) {
  const created = new Map<number, number>()
  const failed: Record<string, number> = {}
  const failures: number[] = []
  const stopping = new AbortController()
  let next = 2
  const done = Promise.all(Array.from({ length: 8 }, client))
  done.catch(() => {}) // `stop` fails with it
  return { stop }

  async function client () {
    while (!stopping.signal.aborted) {
      const id = next++
      for (let attempt = id; !await create(id, attempt); attempt++) await sleep(50)
      await sleep(20)
    }
  }

  async function create (id: number, attempt: number) {
    const response = await fetch(`${urls[attempt % urls.length]}/api/items`, {
      method: 'POST', headers: { 'idempotency-key': `item-${id}` }, body: JSON.stringify({ id, name: 'something', price: 1.5 })
    })
    await response.text()
    if (response.status === 201) return created.set(id, performance.now())
    failures.push(performance.now())
    failed[response.status] = (failed[response.status] ?? 0) + 1
  }

  /** Compares the stored items with the acknowledged ones. Returns for how long writes have failed. */
  async function stop () {
    stopping.abort()
    await done
    for (const url of urls) {
      const stored = await (await fetch(`${url}/api/items`)).json() as { id: number }[]
      const ids = new Set(stored.map(({ id }) => id))
      deepStrictEqual({ lost: [...created.keys()].filter(id => !ids.has(id)), doubled: stored.length - ids.size }, { lost: [], doubled: 0 })
    }
    const times = [...created.values()].sort((a, b) => a - b)
    const [first = Infinity, last = 0] = [failures[0], failures.at(-1)]
    return {
      created: created.size,
      failed,
      /** The longest time between two acknowledged writes, in milliseconds. */
      longest: Math.max(...times.slice(1).map((time, n) => time - (times[n] ?? 0))),
      /** The time from the first failed write to the first acknowledged one after the last failed one. */
      failing: Math.max(0, (times.find(time => time > last) ?? 0) - first)
    }
  }
}

/** Starts etcd, three nodes with deploy/patroni.yaml, and haproxy with deploy/haproxy.cfg. */
async function startCluster (scope: Scope) {
  const folder = newFolder(scope)
  chmodSync(folder, 0o755)
  const isFaulty = faulty.test(execFileSync('patroni', ['--version'], { encoding: 'utf8' }))
  const [etcd, peers, port] = [await lastingPort(), await lastingPort(), await lastingPort()]
  const urls = ['client', 'peer'].flatMap((kind, n) => ['listen', kind === 'peer' ? 'initial-advertise' : 'advertise']
    .map(what => `--${what}-${kind}-urls=http://127.0.0.1:${n ? peers : etcd}`))
  const dcs = spawn('etcd', [`--data-dir=${folder}/etcd`, `--initial-cluster=default=http://127.0.0.1:${peers}`, ...urls, ...isFaulty ? ['--enable-v2'] : []], { stdio: 'ignore' })
  scope.teardown(() => dcs.kill('SIGKILL'))
  await until(async () => (await fetch(`http://127.0.0.1:${etcd}/health`).catch(() => undefined))?.ok === true)
  copyFileSync('deploy/patroni.yaml', `${folder}/patroni.yaml`)
  const nodes = await Promise.all(['node1', 'node2', 'node3'].map(name => startNode(scope, folder, name, etcd, isFaulty ? 'PATRONI_ETCD' : 'PATRONI_ETCD3')))
  await until(() => isComplete(nodes))

  const config = readFileSync('deploy/haproxy.cfg', 'utf8').replace('bind :5432', `bind 127.0.0.1:${port}`)
    .replace(/server (node(\d)) .*/g, (_, name, n) => `server ${name} ${nodes[n - 1]?.haproxyAddress}`)
  writeFileSync(`${folder}/haproxy.cfg`, config)
  const haproxy = spawn('haproxy', ['-db', '-f', `${folder}/haproxy.cfg`], { stdio: 'ignore' })
  scope.teardown(() => haproxy.kill('SIGKILL'))
  return { nodes, url: `postgres://ada:open%20sesame@127.0.0.1:${port}/postgres` }
}

/** Starts Patroni. Other nodes and haproxy reach it through proxies that can be cut, and so does it reach etcd. */
async function startNode (scope: Scope, parent: string, name: string, etcd: number, setting: string) {
  const folder = `${parent}/${name}`
  mkdirSync(folder)
  if (user.uid) chownSync(folder, user.uid, user.gid)
  const [rest, port] = [await lastingPort(), await lastingPort()]
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
    PATRONI_REPLICATION_PASSWORD: 'open sesame'
  }
  scope.teardown(kill)
  run()
  return { name, api: `http://127.0.0.1:${rest}`, haproxyAddress: `127.0.0.1:${toPort.port} port ${toRest.port}`, run, signal, kill, cut }

  function run () {
    spawn('patroni', [`${parent}/patroni.yaml`], { ...user, env, cwd: folder, stdio: 'ignore' })
  }

  /** Sends a signal to Patroni and to all processes of PostgreSQL, and returns how many there are. They have the folder of the node as their directory. */
  function signal (name: NodeJS.Signals) {
    const pids = readdirSync('/proc').filter(pid => /^\d+$/.test(pid) && directoryOf(pid).startsWith(folder))
    for (const pid of pids) process.kill(Number(pid), name)
    return pids.length
  }

  async function kill () {
    await until(() => signal('SIGKILL') === 0)
  }

  function cut () {
    const restores = [toEtcd, toRest, toPort].map(proxy => proxy.cut())
    return () => { for (const restore of restores) restore() }
  }
}

/** The working directory of a process, if it still runs. */
function directoryOf (pid: string) {
  try {
    return readlinkSync(`/proc/${pid}/cwd`)
  } catch {
    return ''
  }
}

async function primaries (nodes: Node[]) {
  const answers = await Promise.all(nodes.map(({ api }) => fetch(`${api}/primary`, { signal: AbortSignal.timeout(1000) }).catch(() => undefined)))
  return nodes.filter((_, n) => answers[n]?.ok)
}

async function hasPrimary (nodes: Node[]) {
  return (await primaries(nodes)).length > 0
}

/** Returns whether a cluster has a primary, a synchronous standby and another standby, which follow it. */
async function isComplete ([node]: Node[]) {
  const response = await fetch(`${node?.api}/cluster`, { signal: AbortSignal.timeout(1000) }).catch(() => undefined)
  if (!response?.ok) return false
  const { members } = await response.json() as { members: Member[] }
  return members.map(({ role }) => role).sort().join() === 'leader,replica,sync_standby' &&
    members.every(({ state, timeline }) => /^(running|streaming)$/.test(state) && timeline === members[0]?.timeline)
}
