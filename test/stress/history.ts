import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { newFolder } from '../support/folder.js'
import { startPostgres } from '../support/postgres.js'
import { until } from '../support/until.js'
import { violationOf, type Operation } from './linearizable.js'
import { isReady, serve, type Scope, type Service } from './service.js'

interface Options {
  /** How many operations are done before each fault, and after the last one. */
  operations: number
  clients: number
  /** How often an instance is killed. */
  kills: number
  /** The longest time that a trigger takes, in seconds. */
  delay?: number
  /** `DATABASE_TIMEOUT` of the instances. */
  timeout?: string
  /** The share of PUT and PATCH requests, in addition to the usual ones. */
  updates?: number
}

interface User {
  id: number
  name: string
}

const ids = [1, 2, 3]

/** The users, with all operations. */
const collections = {
  users: {
    schema: { type: 'object', required: ['id', 'name'], properties: { id: { type: 'integer' }, name: { type: 'string' } } },
    idSource: 'client',
    unique: ['name'], // a retry with a key, and a PUT or PATCH that keeps the name, are no conflicts
    seed: [{ id: 1, name: 'Ada' }]
  }
}

/**
 * Three instances of the service are used at random by some clients while instances are killed and the primary server
 * fails over to its standby.
 */
export async function history (scope: Scope, { operations, clients, kills, delay = 0.02, timeout = '5000', updates }: Options) {
  const primary = await startPostgres(scope)
  if (!primary) throw new Error('PostgreSQL does not start')
  const standby = await primary.startStandby(scope)
  await primary.query("alter system set synchronous_standby_names = '*'")
  await primary.query('select pg_reload_conf()')
  const proxy = await startSwitch(scope, primary.port)
  const file = collectionsFile(scope)
  const instance = (n: number) => serve(scope, { DATABASE_URL: `${proxy.url}?application_name=instance-${n}`, DATABASE_TIMEOUT: timeout, COLLECTIONS_FILE: file })
  const instances = await Promise.all([1, 2, 3].map(instance))

  // Transactions take different times, so that they would not commit in the order in which they have inserted.
  await primary.query(`
    create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(random() * ${delay}); return null; end';
    create trigger wait after insert or update or delete on users for each statement execute function wait()`)
  const { more, endDropped, check } = await useInstances(scope, instances, { clients, pause: 40, updates })

  for (let kill = 1; kill <= kills; kill++) {
    await more(operations)
    scope.comment(`kill ${kill} of ${kills}`)
    const oldest = instances.shift() as Service
    oldest.process.kill('SIGKILL')
    await oldest.exit
    await until(async () => (await primary.query(`select from pg_stat_activity where application_name = 'instance-${kill}'`)).length === 0)
    endDropped()
    instances.push(await instance(kill + 3))
  }
  await more(operations)
  scope.comment('failover')
  proxy.switchTo(standby.port)
  await primary.stop('SIGQUIT')
  await sleep(200)
  await standby.promote()
  for (const { url } of instances) await until(() => isReady(url))
  await more(operations)
  return { ...await check(), kills }
}

/** A file with the collections that the clients use. */
export function collectionsFile (scope: Scope) {
  const file = `${newFolder(scope)}/collections.json`
  writeFileSync(file, JSON.stringify(collections))
  return file
}

/**
 * Clients that use instances at random. What they have seen must be possible with one list that is used by one client
 * after the other. Between two operations, a client pauses for up to so many milliseconds.
 */
export async function useInstances (scope: Scope, instances: Pick<Service, 'url'>[], { clients, pause, updates = 0 }: { clients: number, pause: number, updates?: number }) {
  const done: Operation[] = ids.map(id => ({ kind: 'append', id, name: id === 1 ? 'Ada' : `first ${id}`, sent: -2, answered: -1 }))
  const lists: { sent: number, answered: number, users: User[] }[] = []
  const unknown: Record<string, number> = {}
  /** Names that updates have set. */
  const updated = new Set<string>()
  /** Operations whose connection was closed before their response. */
  const dropped = new Set<Operation>()
  let clock = 0
  let names = 0
  const stopping = new AbortController()
  scope.teardown(() => stopping.abort())
  for (const id of ids.slice(1)) await until(async () => await post(0, { id, name: `first ${id}` }, `first-${id}`) === 201)
  const running = Array.from({ length: clients }, client)
  return { more, endDropped, check }

  /** Waits for so many operations. */
  async function more (operations: number) {
    const enough = done.length + operations
    await until(() => done.length >= enough)
  }

  /** The operations whose connection was closed have taken effect by now, or never will. */
  function endDropped () {
    clock++
    for (const operation of dropped) Object.assign(operation, { answered: clock, isOver: true })
    dropped.clear()
  }

  /** Stops the clients and checks what they have seen. */
  async function check () {
    stopping.abort()
    await Promise.all(running)
    await list(0)
    scope.comment(`checking ${done.length} operations, ${done.filter(({ answered }) => answered === Infinity).length} without a response`)
    checkOrder()
    for (const id of ids) {
      const violation = violationOf(done.filter(operation => operation.id === id))
      equal(violation && explain(violation), undefined, `the results for id ${id} are possible`)
    }
    return { operations: done.length, lists: lists.length, unknown }
  }

  async function client () {
    while (!stopping.signal.aborted) {
      await sleep(Math.random() * pause) // so that the history is short enough to be checked
      const n = Math.floor(Math.random() * instances.length)
      const id = ids[Math.floor(Math.random() * ids.length)] as number
      const kind = Math.random() < updates ? 0.5 : Math.random()
      if (kind < 0.2) await append(n, id)
      else if (kind < 0.35) await append(n, id, true)
      else if (kind < 0.5) await removeFirst(n, id)
      else if (kind < 0.65) await update(n, id)
      else if (kind < 0.8) await first(n, id)
      else if (kind < 0.95) await list(n)
      else await walk(n)
    }
  }

  async function append (n: number, id: number, isKeyed = false) {
    const name = `record ${++names}`
    const key = isKeyed ? `key-${names}` : undefined
    const operation: Operation = { kind: 'append', id, name, sent: ++clock, answered: Infinity }
    done.push(operation)
    // A request with a key is sent again, also to other instances, until it is answered.
    for (let attempt = 0; attempt < (key ? 20 : 1); attempt++) {
      const status = await post(n + attempt, { id, name }, key, operation)
      if (status === 201) return answer(operation)
      await sleep(20)
    }
  }

  async function removeFirst (n: number, id: number) {
    const operation: Operation = { kind: 'removeFirst', id, sent: ++clock, answered: Infinity }
    done.push(operation)
    const status = await send(n, `/${id}`, { method: 'DELETE' }, operation).then(response => response?.status)
    if (status === 204 || status === 404) answer(operation, status === 204)
  }

  async function update (n: number, id: number) {
    const name = `record ${++names}`
    updated.add(name)
    const operation: Operation = { kind: 'update', id, name, sent: ++clock, answered: Infinity }
    done.push(operation)
    const response = await send(n, `/${id}`, { method: names % 2 ? 'PATCH' : 'PUT', body: JSON.stringify({ name }) }, operation)
    if (response?.status === 200 || response?.status === 404) answer(operation, response.status === 200)
  }

  async function first (n: number, id: number) {
    const sent = ++clock
    const response = await send(n, `/${id}`)
    if (response?.status !== 200 && response?.status !== 404) return
    const name = response.status === 200 ? (await response.json() as User).name : undefined
    done.push({ kind: 'first', id, sent, answered: ++clock, result: name })
  }

  async function list (n: number) {
    const sent = ++clock
    const response = await send(n, '')
    if (response?.status !== 200) return
    const users = await response.json() as User[]
    const answered = ++clock
    lists.push({ sent, answered, users })
    for (const id of ids) done.push({ kind: 'all', id, sent, answered, result: users.filter(user => user.id === id).map(({ name }) => name) })
  }

  /** Follows the pages. No record may be on two of them. */
  async function walk (n: number) {
    const seen: string[] = []
    for (let path: string | undefined = '?limit=3'; path !== undefined;) {
      const response: Response | undefined = await send(n, path)
      if (response?.status !== 200) return
      seen.push(...(await response.json() as User[]).map(({ name }) => name))
      path = /<(.+)>/.exec(response.headers.get('link') ?? '')?.[1]
    }
    equal(new Set(seen).size, seen.length, 'no record is on two pages')
  }

  async function post (n: number, user: User, key?: string, operation?: Operation) {
    const response = await send(n, '', {
      method: 'POST', body: JSON.stringify(user), headers: key ? { 'idempotency-key': key } : {}
    }, key ? undefined : operation) // with a key, it is sent again
    return response?.status
  }

  async function send (n: number, path: string, init?: RequestInit, operation?: Operation) {
    const response = await fetch(`${urlOf(n)}/api/users${path}`, init).catch(() => undefined)
    const outcome = response?.status ?? 'dropped'
    if (outcome === 'dropped' && operation) dropped.add(operation)
    if (outcome === 503 || outcome === 'dropped') {
      unknown[outcome] = (unknown[outcome] ?? 0) + 1
      await until(() => stopping.signal.aborted || isReady(urlOf(n))) // so that few operations have an unknown outcome
    }
    return response
  }

  function urlOf (n: number) {
    return String(instances[n % instances.length]?.url)
  }

  function answer (operation: Operation, result?: boolean) {
    operation.answered = ++clock
    operation.result = result
  }

  /** No record appears before one that was in the list before. An updated record has another name, in the same place. */
  function checkOrder () {
    ok(lists.length > 5, `${lists.length} lists`)
    for (const later of lists) {
      const names = later.users.map(({ name }) => name)
      equal(new Set(names).size, names.length, 'no record is stored twice')
      const earlier = lists.filter(({ answered }) => answered < later.sent).at(-1)?.users ?? []
      const common = earlier.map(({ name }) => name).filter(name => names.includes(name))
      deepStrictEqual(names.filter(name => common.includes(name)), common, 'records keep their order')
      const isCreated = (name: string) => !updated.has(name)
      const old = common.filter(isCreated)
      deepStrictEqual(names.filter(isCreated).slice(0, old.length), old, 'new records are last')
    }
  }
}

function explain (operations: Operation[]) {
  return operations.toSorted((a, b) => a.sent - b.sent)
    .map(({ kind, id, name = '', sent, answered, result }) => `${sent} to ${answered}: ${kind} ${id} ${name} = ${JSON.stringify(result)}`).join('\n')
}

/** A TCP proxy whose new connections can be switched to another port, and whose connections can be cut. */
export async function startSwitch (scope: Pick<Scope, 'teardown'>, first: number) {
  let target = first
  let restored = Promise.resolve()
  const sockets = new Set<Socket>()
  const server = createServer(client => {
    const upstream = connect(target, '127.0.0.1')
    for (const [from, to] of [[client, upstream], [upstream, client]] as const) {
      sockets.add(from)
      from.on('error', () => {})
        .on('data', async data => { await restored; to.write(data) })
        .on('close', async () => { await restored; to.destroySoon() })
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  scope.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return {
    port,
    url: `postgres://ada:open%20sesame@127.0.0.1:${port}/postgres`,
    switchTo (port: number) { target = port },

    /** Delivers nothing, as if packets were lost, until the returned function is called. */
    cut () {
      let restore = () => {}
      restored = new Promise(resolve => { restore = resolve })
      return () => restore()
    }
  }
}
