// Compares the databases of this build with those of another one, over HTTP.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { compare, folder, ratio, start } from './measure.js'

const integer = { type: 'integer' }
const schema = {
  type: 'object',
  required: ['id', 'name', 'member_id'],
  properties: { id: integer, name: { type: 'string' }, member_id: integer, price: { type: 'number' } }
}
const collections = { things: { schema }, posts: { schema }, loans: { schema, filters: ['member_id'] } }

const post = { method: 'POST', path: '/api/posts', body: '{"name":"Number {n}","member_id":{n},"price":2.25}' }
const patch = { method: 'PATCH', path: '/api/things/{id}', body: '{"price":{n}}' }

const workloads = {
  'list of 10,000, 16 clients': { path: '/api/things', clients: 16 },
  'page of 100': { path: '/api/things?limit=100' },
  'GET one of 10,000': { path: '/api/things/{id}' },
  'POST, 1 client': { ...post, clients: 1 },
  'POST, 16 clients': { ...post, clients: 16 },
  'POST, 64 clients': post,
  'PATCH of 10,000 records': patch,
  'PATCH of one record': { ...patch, path: '/api/things/1' },
  'batches of 1,000, 1 client': { ...post, path: '/api/posts/batch', body: thousand(0), clients: 1 },
  'filter for 10 of 1,000,000': { path: '/api/loans?member_id={id}' }
}

/** Ratios of requests per second to those of the build in another folder, by workload and database. */
export async function compareDatabases (other, rounds) {
  const commit = execFileSync('git', ['-C', other, 'rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim()
  const rows = Object.keys(workloads).map(name => ({ name }))
  for (const [database, urls] of Object.entries(await databases())) {
    const servers = [await open('..', urls[0]), await open(other, urls[1])]
    for (const row of rows) {
      console.error(database, row.name)
      const contenders = servers.map(server => ({ ...server, workload: workloads[row.name] }))
      row[database] = ratio(...Object.values(await compare(contenders, rounds)))
    }
    for (const { stop } of servers) stop()
  }
  return { commit, rounds, rows }
}

/** Two databases of each kind. PostgreSQL is the one of `DATABASE_URL`, or that of the tests. */
async function databases () {
  const { query, startPostgres } = await import('../test/support/postgres.ts')
  const server = process.env.DATABASE_URL ?? (await startPostgres({ teardown () {}, comment: console.error }))?.url
  const names = ['bench_this', 'bench_other']
  const SQLite = names.map(name => `sqlite:${join(folder, name)}.db`)
  if (!server) return { SQLite }
  for (const name of names) await query(`drop schema if exists ${name} cascade; create schema ${name}`, server)
  return { SQLite, PostgreSQL: names.map(name => `${server}?options=-csearch_path%3D${name}`) }
}

/** Starts the build in a folder on an empty database, and creates 10,000 things and 1,000,000 loans. */
async function open (build, url) {
  const file = join(folder, 'collections.json')
  writeFileSync(file, JSON.stringify(collections))
  const env = { DATABASE_URL: url, COLLECTIONS_FILE: file, LOG_LEVEL: 'silent' }
  const server = await start({ name: build, command: ['node', join(build, 'dist/src/server.js')], env })
  for (let n = 0; n < 10; n++) await create(server, 'things', n)
  for (let n = 0; n < 1000; n++) await create(server, 'loans', n)
  return server
}

async function create ({ url }, collection, n) {
  const response = await fetch(`${url}/api/${collection}/batch`, { method: 'POST', body: thousand(n) })
  if (response.status !== 201) throw new Error(`${url} answers ${response.status}`)
  await response.arrayBuffer()
}

/** A thousand records. Ten of a million have the same member. */
function thousand (n) {
  const records = Array.from({ length: 1000 }, (_, index) => {
    const id = n * 1000 + index + 1
    return { name: `Number ${id}`, member_id: id % 100_000, price: id + 0.25 }
  })
  return JSON.stringify(records)
}
