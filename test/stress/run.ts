// The long form of test/stress/*.test.ts. Writes its results to bench/stress.md. With words as arguments, it runs only
// what has one of them in its name, and writes nothing.
import { ok } from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { newFolder } from '../support/folder.js'
import { startPostgres } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { expensive } from './bounds.js'
import { clusterFault, clusterFaults } from './cluster.js'
import { randomCollections } from './collections.js'
import { fullDisk, kills, redisGone, trouble, troubles } from './faults.js'
import { generated } from './generated.js'
import { history } from './history.js'
import { withoutCluster } from './patroni.js'
import { previousRelease, rollingRestart } from './rolling.js'
import { seedOf } from './seed.js'
import { serve, type Scope } from './service.js'
import { soak } from './soak.js'
import { compressedLists, mangled, neverReads, slowClients } from './wire.js'

interface Drill {
  name: string
  /** Runs it and returns a description of the result. */
  run (scope: Scope): Promise<string>
}

const words = process.argv.slice(2)
const endings: (() => unknown)[] = []
const postgres = await startPostgres({ teardown: ending => { endings.push(ending) }, comment: console.error })
if (!postgres) process.exit(1)

const engines = {
  memory: () => 'memory',
  SQLite: (scope: Scope) => `sqlite:${newFolder(scope)}/items.db`,
  PostgreSQL: () => postgres.database()
}

const drills: Drill[] = [
  ...Object.entries(engines).map(([engine, address]) => ({
    name: `Generated requests, ${engine}`,
    async run (scope: Scope) {
      const { url } = await serve(scope, { DATABASE_URL: address(scope), DOCS: 'true' })
      const { requests, statuses, seed } = await generated(url, {
        requests: 100_000, holdsNul: engine === 'memory', progress: done => scope.comment(`${done} requests`)
      })
      return `${requests} requests, every answer in the document and as a model has it: ${listed(statuses)} (TEST_SEED=${seed})`
    }
  })),
  ...Object.entries(engines).map(([engine, address]) => ({
    name: `Random collections, ${engine}`,
    async run (scope: Scope) {
      const { seed = randomInt(2 ** 31) } = seedOf()
      const random = randomCollections(400, seed)
      const file = `${newFolder(scope)}/collections.json`
      writeFileSync(file, random.file)
      const { url } = await serve(scope, { DATABASE_URL: address(scope), COLLECTIONS_FILE: file })
      const { problems, accepted, requests } = await random.check(async (method, path, body) => {
        const response = await fetch(url + path, { method, headers: { 'content-type': 'application/json' }, body: body && JSON.stringify(body) })
        const text = await response.text()
        return { status: response.status, body: text && JSON.parse(text) }
      }, 40)
      ok(problems.length === 0, `${JSON.stringify(problems[0])} TEST_SEED=${seed}`)
      return `${requests} records for 400 schemas, ${accepted} of them accepted, all as Ajv has it (TEST_SEED=${seed})`
    }
  })),
  {
    name: 'Requests in pieces, and mangled',
    async run (scope) {
      const { url } = await serve(scope)
      const { connections, reset, cutOff, created, seed } = await mangled(url, { runs: 20_000, progress: done => scope.comment(`${done} connections`) })
      return `${connections} connections, ${reset} of them reset by the client and ${cutOff} by the system; ${created} records created, and none that nobody was told of (TEST_SEED=${seed})`
    }
  },
  {
    name: 'Slow headers and slow bodies',
    async run (scope) {
      const { clients, alone, beside, longest, slowdown } = await slowClients(scope, { clients: 1000, requests: 5000, toTheEnd: true })
      ok(slowdown < 5, `another client is served ${slowdown} times as slowly`)
      return `${clients} slow clients: p99 of another one ${beside.toFixed(1)} ms, at most ${longest.toFixed(1)} ms; without them, p99 ${alone.toFixed(1)} ms; each got its 408`
    }
  },
  {
    name: 'A million records that nobody reads',
    async run (scope) {
      const { readers, megabytes, alone, beside, longest, slowdown } = await neverReads(scope, { records: 1_000_000, name: 'somebody', readers: 10, requests: 1000 })
      ok(slowdown < 5, `another client is served ${slowdown} times as slowly`)
      return `${readers} such clients: ${megabytes.toFixed(1)} MB more; p99 of another one ${beside.toFixed(1)} ms, at most ${longest.toFixed(1)} ms; without them, p99 ${alone.toFixed(1)} ms`
    }
  },
  {
    name: 'Compressed lists that nobody reads',
    async run (scope) {
      const { clients, megabytes, isLimited } = await compressedLists(scope, { clients: 250 })
      ok(megabytes < 120, `${megabytes} MB more`)
      return `${clients} such clients, each after a change: ${megabytes.toFixed(1)} MB more${isLimited ? '; the service had 256 MiB' : ''}`
    }
  },
  {
    name: 'Expensive requests with a heap of 128 MB',
    async run (scope) {
      const figures = Object.entries(await expensive(scope, { share: 1, connections: 600, posts: 20_000 }))
      return figures.map(([kind, { megabytes, wait }]) => `${kind}: ${megabytes.toFixed()} MB, a probe waited ${wait.toFixed()} ms`).join('; ')
    }
  },
  {
    name: 'kill -9 under load, SQLite',
    async run (scope) {
      const { rounds, created, deleted } = await kills(scope, engines.SQLite(scope), { rounds: 30 })
      return `${rounds} kills: ${created} acknowledged creations and ${deleted} deletions, all there, once`
    }
  },
  {
    name: 'kill -9 under load, PostgreSQL',
    async run (scope) {
      const { rounds, created, deleted } = await kills(scope, engines.PostgreSQL(), { rounds: 30, crash: postgres.crash })
      return `${rounds} kills, every second one of the server too: ${created} acknowledged creations and ${deleted} deletions, all there, once`
    }
  },
  ...Object.entries(troubles).map(([name, happen]) => ({
    name: `PostgreSQL ${name}`,
    async run (scope: Scope) {
      const { created, unavailable, slowest, recovery } = await trouble(scope, postgres, happen)
      return `${created} acknowledged creations, all there, once; ${unavailable} answers were 503, none took longer than ${slowest} ms; ready ${recovery} ms after the server`
    }
  })),
  {
    name: 'A full disk, SQLite',
    async run (scope) {
      const { created, refused } = await fullDisk(scope)
      return `${refused} writes were 503, reads went on; ${created} acknowledged creations, all there, once; with room again, writes went on`
    }
  },
  {
    name: 'Redis gone, and hanging',
    async run (scope) {
      const { created, slowest } = await redisGone(scope)
      return `${created} creations, and nobody was refused; no answer took longer than ${slowest} ms`
    }
  },
  ...(['nginx', 'haproxy'] as const).map(proxy => ({
    name: `Rolling restart behind ${proxy}`,
    async run (scope: Scope) {
      const absent = without(proxy)
      if (absent) return `skipped: ${absent}`
      const { restarts, answers, slowest } = await rollingRestart(scope, postgres, { behind: [proxy], rounds: 5, delay: 3000, previous: previousRelease(scope) })
      return `${restarts} restarts of three instances: every request got its response (${listed(answers)}), none took longer than ${slowest} ms, and what was acknowledged is stored`
    }
  })),
  {
    name: 'History with kills and a failover, PostgreSQL',
    async run (scope) {
      const { operations, lists, kills, unknown } = await history(scope, { operations: 300, clients: 6, kills: 10 })
      return `${operations} operations and ${lists} lists on three instances, ${kills} kills and a failover (${listed(unknown)}): all results are possible with one list`
    }
  },
  {
    name: 'History of changes of three records with a slow trigger, PostgreSQL',
    async run (scope) {
      const { operations, lists, kills, unknown } = await history(scope, { operations: 300, clients: 6, kills: 1, delay: 0.1, timeout: '5000', updates: 0.5 })
      return `${operations} operations and ${lists} lists on three instances, ${kills} kills and a failover (${listed(unknown)}): all results are possible with one list`
    }
  },
  ...Object.entries(clusterFaults).map(([name, happen]) => ({
    name: `Patroni, primary ${name}`,
    async run (scope: Scope) {
      const absent = withoutCluster()
      if (absent) return `skipped: ${absent}`
      const { created, longest, failing, failed, operations, lists, unknown } = await clusterFault(scope, happen)
      return `${seconds(longest)} without an acknowledged write, failed writes for ${seconds(failing)} (${listed(failed)}); ${created} acknowledged creations on two instances, 0 lost, 0 doubled; ${operations} operations and ${lists} lists (${listed(unknown)}): all results are possible with one list`
    }
  })),
  ...Object.entries(engines).map(([engine, address]) => ({
    name: `Soak, ${engine}`,
    async run (scope: Scope) {
      const seconds = 180
      const { requests, share, heap, rss, median, p99, handles, timers } = await soak(scope, address(scope), { seconds, looks: 18 })
      const figures = { heap, rss, median, p99 }
      const grown = Object.entries(figures).map(([name, growth]) => `${name} ${growth.toFixed(2)}`).join(', ')
      if (share < 0.95) throw new Error(`Only ${share} of the load was served`)
      if (heap > 1.1 || rss > 1.1 || median > 1.5 || p99 > 3 || handles > 0 || timers > 0) throw new Error(`It grows: ${grown}, ${handles} handles, ${timers} timers`)
      return `${requests} requests in ${seconds} s, at 70 % of what it can do; the last third to the one before: ${grown}; ${handles} handles and ${timers} timers more`
    }
  }))
]

const rows: string[] = []
for (const { name, run } of drills) {
  if (words.length > 0 && !words.some(word => name.includes(word))) continue
  const began = performance.now()
  const outcome = await inScope(name, run)
  rows.push(`| ${name} | ${outcome.replaceAll('|', '\\|').replaceAll('\n', ' ')} |`)
  progress('')
  console.log(`${name}: ${outcome} (${Math.round((performance.now() - began) / 1000)} s)`)
}
for (const end of endings.reverse()) await end()
if (words.length === 0) {
  writeFileSync('bench/stress.md', `# Stress tests

Written by \`npm run test:stress\` on Node ${process.version} with ${cpus().length} cores. The load and the service run on the same machine.

| test | result |
|---|---|
${rows.join('\n')}
`)
}
process.exit()

/** Runs something and cleans up afterwards. */
async function inScope (name: string, run: Drill['run']) {
  const endings: (() => unknown)[] = []
  try {
    return await run({ teardown: ending => { endings.push(ending) }, comment: (...text) => progress(`${name}: ${text.join(' ')}`) })
  } catch (error) {
    process.exitCode = 1
    return `**FAILED**: ${(error as Error).message}`
  } finally {
    for (const end of endings.reverse()) await end()
  }
}

function listed (statuses: Record<string, number>) {
  return Object.entries(statuses).map(([status, count]) => `${count} × ${status}`).join(', ')
}

function seconds (milliseconds: number) {
  return `${(milliseconds / 1000).toFixed(1)} s`
}

/** Prints a line that the next one replaces. */
function progress (text: string) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`)
}
