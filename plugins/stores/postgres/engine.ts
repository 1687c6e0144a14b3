import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { StartupError } from '../../startup.js'
import { batches, tooLate } from '../batches.js'
import { collectionOf, type Row } from '../collection.js'
import { StoreUnavailableError } from '../errors.js'
import { decideLater, type Asked, type Found, type Source, type Writes } from '../facts.js'
import type { FieldType } from '../fields.js'
import { expiredBefore, keyCleanup, keysAtOnce } from '../idempotency.js'
import { prepareTables, type Connection } from '../sql/schema-changes.js'
import { databaseStore } from '../sql/store.js'
import { columnName, fromColumn, quoted, tableOf, type Dialect, type Table } from '../sql/tables.js'
import type { Engine, EngineOptions, HasId, Store, StoreDefinition } from '../store.js'
import { codeOf, isUnreachable, openConnections, refuseReadOnly, startupError, type Client } from './connections.js'

export const dialect: Dialect = {
  columnTypes: {
    integer: 'bigint',
    number: 'double precision',
    string: 'text collate "C"',
    boolean: 'boolean',
    json: 'text'
  },
  positionType: 'bigint',
  parameter: n => `$${n}`,
  nullsFirst: ' nulls first',
  nullsLast: ' nulls last',
  hasForeignKeys: true
}

/** Opens a PostgreSQL database, which several instances can use. */
export async function postgres (url: string, options: EngineOptions): Promise<Engine> {
  const { timeout, poolSize, onUnavailable } = options
  const connections = await openConnections(url, options)
  const tables = new Map<string, Table>()
  let prepared: Promise<void> | undefined

  const stopCleanup = keyCleanup(function removeExpiredKeys () {
    return connections.transaction(Date.now() + timeout, async client => {
      const expired = `select key, collection from idempotency_keys where at < $1
        order by at limit ${keysAtOnce} for update skip locked`
      const sql = `delete from idempotency_keys where (key, collection) in (${expired})`
      const removal = client.write(sql, expiredBefore())
      const [count] = await Promise.all([removal, client.write('commit')])
      return count
    })
  })

  return { open: openStore, start, check, connections: connections.usage, close }

  /** Prepares the tables. If the server cannot be used at the moment, the first operation tries again. */
  async function start () {
    try {
      await prepare()
    } catch (error) {
      if (!isUnreachable(error)) throw startupError(error)
      onUnavailable?.(error)
    }
  }

  function prepare () {
    prepared ??= prepareAll().catch(error => {
      prepared = undefined
      throw error
    })
    return prepared
  }

  async function prepareAll () {
    const client = connections.newClient()
    try {
      await client.connect()
      await refuseReadOnly(client)
      await checkSettings(client, options)
      await prepareTables(work => schemaTransaction(client, timeout, work), dialect, [...tables.values()], options)
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Prepares the tables, if this is still to be done. An unreachable server is unavailable. */
  async function whenPrepared () {
    await prepare().catch(error => {
      if (!isUnreachable(error)) throw startupError(error)
      onUnavailable?.(error)
      throw new StoreUnavailableError(error)
    })
  }

  /** Writes, and compares the schemas with those of the database, because a newer release may have changed them. */
  async function check () {
    await whenPrepared()
    const digests = await connections.transaction(Date.now() + timeout, async client => {
      const [rows] = await Promise.all([
        client.run('select name, digest from collections'),
        client.write(`insert into idempotency_keys (key, collection, digest, response, at) values ('', '', '', $1, 0)
          on conflict (key, collection) do update set response = excluded.response`, String(Math.random()).repeat(400)),
        client.run('commit')
      ])
      return new Map(rows as [string, string][])
    })
    for (const { name, digest } of tables.values()) if (digests.get(name) !== digest) throw newerSchema(name)
  }

  function openStore<T extends HasId> (definition: StoreDefinition<T>): Store<T> {
    const table = tableOf(collectionOf(definition))
    tables.set(table.name, table)
    // A lock on its table does not take the connections of other collections.
    const whenFree = limited(Math.max(1, Math.floor(poolSize / 2)), timeout)
    const read = (text: string, values: unknown[], isPlain: boolean) => whenFree(async () => {
      await whenPrepared()
      return connections.read(text, values, isPlain)
    })
    const selectFirst = `select (select record from ${table.table} where id = asked.id order by position limit 1)
      from unnest($1::bigint[]) with ordinality as asked (id, n) order by n`
    const first = batches<number>(async function selectAll (ids) {
      const rows = await read(selectFirst, [ids], true)
      return rows.map(([record]) => ({ response: fromColumn(record) as string | undefined }))
    }, { timeout, concurrency: 2 })

    return databaseStore(tables, table, {
      dialect,
      timeout,
      run: ({ text, values, isPlain }) => read(text, values, isPlain),
      first,
      transact: (rules, deadline) => whenFree(async () => {
        await whenPrepared()
        return connections.transaction(deadline, async function decideAndWrite (client) {
          const { outcomes, writes } = await decideLater(rules(), sourceOn(client, table))
          await writeAll(client, table, writes)
          return outcomes
        })
      })
    })
  }

  async function close () {
    await stopCleanup()
    await connections.end()
  }
}

/** Returns a function that runs so much work at once. Work that has waited too long fails. */
function limited (max: number, timeout: number) {
  let free = max
  const waiting = new Set<() => void>()

  return async function whenFree<R> (work: () => Promise<R>) {
    if (free > 0) free--
    else await nextFree()
    try {
      return await work()
    } finally {
      const [next] = waiting
      if (next) next()
      else free++
    }
  }

  function nextFree () {
    return new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        waiting.delete(start)
        reject(tooLate(timeout))
      }, timeout)
      waiting.add(start)

      function start () {
        clearTimeout(timer)
        waiting.delete(start)
        resolve()
      }
    })
  }
}

function newerSchema (name: string) {
  return new StoreUnavailableError(new Error(`A newer release has changed the schema of ${name}`))
}

function sourceOn (client: Client, table: Table): Source {
  return {
    async counter () {
      const [row] = await client.run(
        'select position, last_id, digest from collections where name = $1 for update', table.name)
      if (row?.[2] !== table.digest) throw newerSchema(table.name)
      return { position: Number(row[0]), lastId: Number(row[1]) }
    },
    async rows (wanted) {
      // In the order of the ids, so that transactions do not wait for each other.
      const asked = [...wanted].sort(([one], [other]) => one - other)
      const rows = await client.run(`select stored.position, stored.id, stored.record
        from unnest($1::bigint[], $2::int[]) as asked (id, count), lateral (
          select position, id, record from ${table.table} where id = asked.id
          order by position limit asked.count for no key update) as stored`,
      asked.map(([id]) => id), asked.map(([, count]) => count))
      return rows.map(([position, id, record]) =>
        ({ position: Number(position), id: Number(id), record: String(record) }))
    },
    holders: asked => found(asked, (field, values) => client.run(
      `select ${columnName(field)}, position from ${table.table} where ${columnName(field)} = any($1)`, values)),
    existing: asked => found(asked, (target, ids) => client.run(
      `select id, true from ${quoted(target)} where id = any($1) order by id for key share`, ids)),
    async referred (referrers, ids) {
      const rows = await Promise.all(referrers.map(async ({ collection, field }) => {
        const column = columnName(field)
        const except = collection === table.name ? `and id <> ${column}` : ''
        const found = await client.run(
          `select distinct ${column} from ${quoted(collection)} where ${column} = any($1) ${except}`, ids)
        return found.map(([id]) => [Number(id), collection] as const)
      }))
      return new Map(rows.flat())
    },
    async keys (keys) {
      if (keys.length === 0) return new Map()
      const rows = await client.run(
        'select key, digest, response from idempotency_keys where key = any($1) and collection = $2 and at >= $3',
        keys, table.name, expiredBefore())
      return new Map((rows as string[][]).map(([key = '', digest = '', response = '']) =>
        [key, { key, digest, response }]))
    }
  }
}

/** What is found for values of several names. All statements are sent at once. */
async function found<V, R> (asked: Asked<V>, find: (name: string, values: V[]) => Promise<unknown[][]>) {
  const results: Found<V, R> = new Map(await Promise.all(Array.from(asked, async ([name, values]) =>
    [name, new Map(await find(name, [...values]) as [V, R][])] as const)))
  return results
}

/** Writes and commits. A release whose schema is not the newest one writes nothing. */
async function writeAll (client: Client, table: Table, { inserts, updates, removes, keys, counter }: Writes) {
  const { name, digest } = table
  const changed = [
    ...updates.length > 0 ? [update(client, table, updates, digest)] : [],
    ...removes.length > 0
      ? [client.write(`delete from ${table.table} where position = any($1) and ${isCurrent(2)}`, removes, name, digest)]
      : []
  ]
  const written: Promise<unknown>[] = []
  if (counter) {
    const text = 'update collections set position = $1, last_id = $2 where name = $3'
    written.push(client.write(text, counter.position, counter.lastId, name))
  }
  if (inserts.length > 0) written.push(insert(client, table, inserts))
  if (keys.length > 0) {
    written.push(client.write(`insert into idempotency_keys (key, collection, digest, response, at)
      select key, $2, digest, response, $5
      from unnest($1::text[], $3::text[], $4::text[]) as used (key, digest, response)
      on conflict (key, collection) do update
      set digest = excluded.digest, response = excluded.response, at = excluded.at`,
    keys.map(({ key }) => key),
    name,
    keys.map(({ digest }) => digest),
    keys.map(({ response }) => response),
    Date.now()))
  }
  written.push(client.run('commit'))
  const [counts] = await Promise.all([Promise.all(changed), Promise.all(written)])
  const count = counts.reduce((sum, count) => sum + count, 0)
  if (count < updates.length + removes.length) throw newerSchema(name)
}

/** A condition for the schema of this release, whose name and digest are the next parameters. */
function isCurrent (n: number) {
  return `(select digest from collections where name = $${n}) = $${n + 1}`
}

function insert (client: Client, table: Table, rows: Row[]) {
  const text = `insert into ${table.table} (${table.names}) select * from ${unnest(table)}`
  return client.write(text, ...columnsOf(table, rows))
}

/** Updates rows. With a digest, it does so only while that is the newest schema. */
function update (client: Client, table: Table, rows: Row[], digest?: string) {
  const { names } = table
  const set = names.slice(2).map(name => `${name} = given.${name}`)
  const fence = digest === undefined ? '' : ` and ${isCurrent(names.length + 1)}`
  const text = `update ${table.table} as stored set ${set} from ${unnest(table)} as given (${names})
    where stored.position = given.position${fence}`
  return client.write(text, ...columnsOf(table, rows), ...digest === undefined ? [] : [table.name, digest])
}

/** Rows as parameters: an array for each column. */
function unnest ({ columns }: Table) {
  const types = ['bigint', 'bigint', 'text', ...columns.map(({ type }) => parameterType(type))]
  return `unnest(${types.map((type, n) => `$${n + 1}::${type}[]`)})`
}

function parameterType (type: FieldType) {
  return dialect.columnTypes[type].replace(' collate "C"', '')
}

function columnsOf ({ names, valuesOf }: Table, rows: Row[]) {
  const values = rows.map(valuesOf)
  return names.map((_, n) => values.map(row => row[n]))
}

async function checkSettings (client: pg.Client, { log }: EngineOptions) {
  const { rows: [row] } = await client.query(`select current_setting('server_encoding') as encoding,
    current_setting('synchronous_commit') as commit, current_setting('synchronous_standby_names') as standbys`)
  const { encoding, commit, standbys } = row
  if (encoding !== 'UTF8') {
    throw new StartupError(`The database in the option store has the encoding ${encoding}. ` +
      'Create a database with the encoding UTF8.')
  }
  if (commit === 'off') log?.warn('synchronous_commit is off: PostgreSQL can lose acknowledged writes when it crashes')
  if (commit === 'local' && standbys) {
    log?.warn('synchronous_commit is local: a failover can lose acknowledged writes, ' +
      'because they do not wait for the standby')
  }
}

/** Runs a transaction of a schema change. It starts again if it conflicts with others that start or write meanwhile. */
async function schemaTransaction<R> (client: pg.Client, timeout: number, work: (connection: Connection) => Promise<R>) {
  for (let attempts = 1; ; attempts++) {
    try {
      await client.query(`begin isolation level read committed; set local lock_timeout = ${timeout}`)
      const result = await work(schemaConnection(client))
      await client.query('commit')
      return result
    } catch (error) {
      await client.query('rollback')
      if (attempts === 5 || !/^(40001|40P01|23505|42P07)$/.test(codeOf(error))) throw error
      await sleep(Math.random() * 100)
    }
  }
}

function schemaConnection (client: pg.Client): Connection {
  const query = async (text: string, values: unknown[]) => client.query<unknown[]>({ text, values, rowMode: 'array' })
  const run = async (text: string, ...values: unknown[]) => (await query(text, values)).rows
  const write = async (text: string, ...values: unknown[]) => Number((await query(text, values)).rowCount)
  return {
    run,
    hasTable: async name => (await run('select 1 where to_regclass($1) is not null', name)).length > 0,
    async columnsOf ({ table }) {
      const rows = await run(`select attname from pg_attribute
        where attrelid = $1::regclass and attnum > 0 and not attisdropped`, table)
      return rows.map(([name]) => quoted(String(name)))
    },
    insert: (table, rows) => insert({ run, write }, table, rows),
    update: (table, rows) => update({ run, write }, table, rows),
    lockSchemas: () => run('lock table collection_schemas in exclusive mode'),
    async lockTable ({ name, table }) {
      await run('select 1 from collections where name = $1 for update', name)
      await run(`lock table ${table} in exclusive mode`)
    }
  }
}
