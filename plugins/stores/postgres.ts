import { createHash } from 'node:crypto'
import { connect as connectSocket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { batch } from './batch.js'
import { digestOf, expiredBefore, keyCleanup, oneCallPerKey, previousId, type KeyUse } from './idempotency.js'
import {
  hasId, IdempotencyKeyInUseError, IdempotencyKeyReusedError, maxCountedId, NoIdLeftError, stalledListTimeouts, StartupError, StoreUnavailableError,
  NotStorableError, RecordChangedError, type Collection, type Engine, type EngineOptions, type HasId, type NewRecord, type Store
} from './store.js'
import { loadOptional } from './optional-package.js'
import {
  codeOf, isOutOfDate, isRefusal, isSerializationFailure, isUnknownStatement, isUnreachable, ReadOnlyError, startupError
} from './postgres-errors.js'
import { changesStart, changesTable, idempotencyTable, lastIdsTable, migrate, tableOf, versionOf, type Row, type Snapshot, type Table } from './sql-table.js'

/** A call of `append`. */
interface Insert<T extends HasId> {
  record: NewRecord<T>
  key?: string
  /** The digest of a record with a key. */
  digest?: string
}

/** What a collection needs when the engine starts, and the statements that must work for the service to be ready. */
interface Opened {
  table: Table
  seed (client: pg.Client): Promise<void>
  statements: pg.QueryArrayConfig[]
}

/** Connects to PostgreSQL. Any number of instances can share a database. */
export async function postgres (url: string, { timeout, poolSize, onUnavailable }: EngineOptions): Promise<Engine> {
  checkUrl(url)
  const { default: pg } = await loadOptional('pg', 'DATABASE_URL', () => import('pg'))
  // pg returns a bigint as text. Our values are safe integers, so they become numbers.
  const types = { getTypeParser: (oid: number) => oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid) }
  const login = { connectionString: url, connectionTimeoutMillis: timeout, application_name: 'fastify-items-users', types }
  const opened: Opened[] = []
  let pools = newPools()
  let isPrepared = false
  let preparing: Promise<void> | undefined
  /** Whether prepared statements have names. Some connection poolers do not support that. */
  let usesNames = true
  const cleanup = keyCleanup(async function removeExpiredKeys () {
    const { rowCount } = await query(`
      delete from idempotency_keys where (collection, key) in (
        select collection, key from idempotency_keys where at < ${expiredBefore()} limit 1000 for update skip locked)`)
    return Number(rowCount)
  })

  return { open, start, check, connections, close }

  function open<T extends HasId> (collection: Collection<T>): Store<T> {
    const { name, seed } = collection
    const { table, types, columns, columnNames, encode, sizeOf, valuesOf, encodeRow, checkText, pieceSelection, endSelection, sizeSelection, versionSelection, shortPage, longPage } = tableOf(collection)
    // The text of a double precision depends on extra_float_digits, so it is read as the hexadecimal digits of its bytes.
    const selected = columnNames.map((column, n) => types[n] === 'double precision' ? `encode(float8send(${column}), 'hex') as ${column}` : column).join(', ')
    const insert = inserter(false)
    const insertAndNumber = inserter(true)

    const selectUses = statement(`
      select key, digest, id from idempotency_keys where collection = '${name}' and key = any($1::text[]) and at >= $2::bigint`)
    const selectFirsts = statement(`
      select found.*, asked.place from unnest($1::bigint[]) with ordinality as asked (id, place),
      lateral (select ${selected} from ${table} as t where t.id = asked.id order by position limit 1) as found`)
    const selectPiece = statement(pieceSelection('$1::bigint', '$2::int', selected))
    const selectEnd = statement(endSelection('$1::bigint', '$2::int'))
    const selectVersion = statement(versionSelection(selected))
    const selectExpected = statement(`select ${selected}, position from ${table} where id = $1::bigint order by position limit 1`)
    const deleteExpected = statement(`
      with _lock as materialized (select ${lock(name, timeout)})
      delete from ${table} using _lock where position = $1::bigint and position = (select min(position) from ${table} where id = $2::bigint)`)

    const readVersion = batch(async function readOnce (calls: undefined[]) {
      const { rows } = await query(selectVersion)
      return calls.map(() => versionOf(rows))
    }, { concurrency: 2 })

    const selectFirst = batch(async function selectAll (ids: number[]) {
      const { rows } = await query({ ...selectFirsts, values: [ids] })
      const found = new Array<string | undefined>(ids.length)
      for (const row of rows) found[Number(row.at(-1)) - 1] = encodeRow(decoded(row))
      return found
    }, { concurrency: 2 })

    const deleteFirst = batch(async function deleteAll (ids: number[]) {
      // Two statements in one transaction: the second one sees the changes of previous holders of the lock.
      const results = await query(`select ${lock(name, timeout)}; ${deletion(ids)}`)
      const deleted = [results].flat().flatMap(({ rows }) => rows as HasId[]).map(({ id }) => id)
      return ids.map(id => {
        const n = deleted.indexOf(id)
        return n >= 0 && deleted.splice(n, 1).length === 1
      })
    })

    opened.push({
      table: postgresTable(collection),
      async seed (client) {
        await client.query(insertion(false, false), columnsOf(seed.map(record => ({ record }))))
      },
      statements: [
        { text: insertion(true, true), values: [...columnsOf([], true), 0, 0] },
        { text: selectPiece.text, values: [0, 1] },
        selectVersion,
        { text: deletion([]) }
      ].map(statement => ({ ...statement, rowMode: 'array' }))
    })

    return {
      append: oneCallPerKey<T>(async function append (record, key) {
        checkText(record)
        const digest = key === undefined ? undefined : digestOf(encode(record))
        return (hasId(record) ? insert : insertAndNumber)({ record, key, digest })
      }),

      async first (id) {
        return Number.isSafeInteger(id) ? selectFirst(id) : undefined
      },

      async list () {
        return (await page(Infinity)).list
      },

      page,

      async removeFirst (id, isExpected) {
        if (!Number.isSafeInteger(id)) return false
        return isExpected ? removeExpected(id, isExpected) : deleteFirst(id)
      },

      async size () {
        const { rows } = await query({ text: sizeSelection, rowMode: 'array' })
        return Math.round(Number(rows[0]))
      },

      version: () => readVersion(undefined)
    }

    /** Removes the first record with this id if it is the expected one. If another call removes it meanwhile, it looks again. */
    async function removeExpected (id: number, isExpected: (record: string) => boolean): Promise<boolean> {
      const { rows: [row] } = await query({ ...selectExpected, values: [id] })
      if (row === undefined) return false
      if (!isExpected(encodeRow(decoded(row)))) throw new RecordChangedError()
      const { rowCount } = await query({ ...deleteExpected, values: [row.at(-1), id] })
      return rowCount === 1 || removeExpected(id, isExpected)
    }

    async function page (limit: number, after = 0) {
      const page = await shortPage(async (...values) => (await query({ ...selectPiece, values })).rows.map(decoded), limit, after)
      return page ?? longPage(await openSnapshot(), timeout * stalledListTimeouts, limit, after)
    }

    function decoded (row: Row) {
      return row.map((value, n) => types[n] === 'double precision' && typeof value === 'string' ? Buffer.from(value, 'hex').readDoubleBE() : value)
    }

    /** Combines inserts into batches. A retry with an idempotency key is answered with the record that the key has created. */
    function inserter (isNumbered: boolean) {
      const [plain, keyed] = [statement(insertion(isNumbered, false)), statement(insertion(isNumbered, true))]

      return batch(async function insertAll (inserts: Insert<T>[]): Promise<(string | Error)[]> {
        const earlier = await responsesOf(inserts)
        const inserted = await insertNew(inserts.filter((_, n) => earlier[n] === undefined))
        return earlier.map(response => response ?? inserted.shift() as string | Error)
      }, { sizeOf: ({ record }: Insert<T>) => sizeOf(record) })

      /** Inserts records in one statement. If the database rejects one of them, it splits the batch to find out which. */
      async function insertNew (inserts: Insert<T>[]): Promise<(string | Error)[]> {
        if (inserts.length === 0) return []
        const isKeyed = inserts.some(({ key }) => key !== undefined)
        const values = [...columnsOf(inserts, isKeyed), ...isKeyed ? [Date.now(), expiredBefore()] : []]
        try {
          const { rows } = await query({ ...isKeyed ? keyed : plain, values })
          return isKeyed || isNumbered ? await outcomesOf(inserts, rows) : inserts.map(({ record }) => encode(record))
        } catch (error) {
          if (!isRefusal(error)) throw error
          if (inserts.length === 1) return [new NotStorableError('', 'is rejected by the database')]
          const half = Math.ceil(inserts.length / 2)
          return [...await insertNew(inserts.slice(0, half)), ...await insertNew(inserts.slice(half))]
        }
      }
    }

    /** The responses of the inserts whose keys have been used before. */
    async function responsesOf (inserts: Insert<T>[]) {
      const keys = inserts.flatMap(({ key }) => key ?? [])
      if (keys.length === 0) return inserts.map(() => undefined)
      const { rows } = await query({ ...selectUses, values: [keys, expiredBefore()] })
      const uses = new Map(rows.map(([key, digest, id]) => [key, { digest, id } as KeyUse]))
      return inserts.map(({ record, key, digest = '' }) => {
        const use = uses.get(key)
        if (use === undefined) return undefined
        return use.digest === digest ? encode({ ...record, id: previousId(use, digest) }) : new IdempotencyKeyReusedError()
      })
    }

    /** The outcomes of inserts, from rows of a place, an id, and whether the record was inserted. */
    async function outcomesOf (inserts: Insert<T>[], rows: Row[]) {
      const rowsByPlace = new Map(rows.map(row => [Number(row[0]) - 1, row]))
      const outcomes = inserts.map(({ record }, n) => {
        const [, id, isInserted] = rowsByPlace.get(n) ?? []
        if (id === undefined) return new NoIdLeftError()
        return isInserted ? encode({ ...record, id }) : undefined
      })
      if (!outcomes.includes(undefined)) return outcomes as (string | Error)[]
      // Another instance has used the key since we looked.
      const earlier = await responsesOf(inserts)
      return outcomes.map((outcome, n) => outcome ?? earlier[n] ?? new IdempotencyKeyInUseError())
    }

    /** The columns of records as arrays, with a column for the keys and one for the digests. */
    function columnsOf (inserts: Insert<T>[], isKeyed = false): unknown[][] {
      const rows = inserts.map(({ record, key, digest }) => [...valuesOf(record), key, digest])
      return Array.from({ length: types.length + (isKeyed ? 2 : 0) }, (_, n) => rows.map(row => row[n]))
    }

    /**
     * Inserts records while it holds the lock of the collection, so that positions are in order of commits: no record
     * appears before one that has been visible already. Returns a row for each record with its place, its id and whether
     * it was inserted, unless there are neither generated ids nor keys.
     */
    function insertion (isNumbered: boolean, isKeyed: boolean) {
      const given = [...types, ...isKeyed ? ['text', 'text'] : []].map((type, n) => `$${n + 1}::${type}[]`)
      const records = isNumbered ? '_numbered' : '_given'
      const keys = isKeyed ? ', _key, _digest' : ''
      const isInserted = isKeyed ? '_key is null or _key in (select key from _claimed)' : 'true'
      const insert = `insert into ${table} (${columns}) select ${columns} from ${records} where ${isInserted} order by _place`
      return `
        with _lock as materialized (select ${lock(name, timeout)}),
        _given as materialized (
          select given.* from _lock, unnest(${given.join(', ')}) with ordinality as given (${columns}${keys}, _place)
        )
        ${isNumbered ? `, ${numbering(keys)}` : ''}
        ${isKeyed ? `, ${claim(records, given.length)}` : ''}
        ${isNumbered || isKeyed ? `, _inserted as (${insert}) select _place, "id", ${isInserted} from ${records}` : insert}`
    }

    /** Gives each record the next id that no record has. The counter is locked until the end of the transaction. */
    function numbering (keys: string) {
      return `
        _last as (select last_ids.id from last_ids, _lock where collection = '${name}' for update of last_ids),
        _following as (
          select generate_series(
            1 + greatest(id, (select max(id) from ${table} where id <= ${maxCountedId})), ${Number.MAX_SAFE_INTEGER}) as id
          from _last
        ),
        _free as (
          select id from _following where (select count(*) from ${table} as taken where taken.id = _following.id) = 0
          limit (select count(*) from _given)
        ),
        _counted as (update last_ids set id = greatest(id, (select max(id) from _free)) where collection = '${name}'),
        _numbers as (select id, row_number() over (order by id) as _place from _free),
        _numbered as materialized (
          select ${columns.replace('"id"', '_numbers.id as "id"')}${keys}, _place
          from (select ${columns.replace('"id"', '"id" as _no_id')}${keys}, _place from _given) as unnumbered join _numbers using (_place)
        )`
    }

    /** Stores the keys that are new or expired. The database decides which of several instances is the first. */
    function claim (records: string, parameters: number) {
      return `
        _claimed as (
          insert into idempotency_keys as used (collection, key, digest, id, at)
          select '${name}', _key, _digest, "id", $${parameters + 1}::bigint from ${records} where _key is not null
          on conflict (collection, key) do update set digest = excluded.digest, id = excluded.id, at = excluded.at
          where used.at < $${parameters + 2}::bigint
          returning key
        )`
    }

    function deletion (ids: number[]) {
      return `
        with _asked as (select id, count(*) from unnest('{${ids}}'::bigint[]) as id group by id),
        _found as (
          select firsts.position from _asked,
          lateral (select position from ${table} as t where t.id = _asked.id order by position limit _asked.count) as firsts
        )
        delete from ${table} where position in (select position from _found) returning id`
    }

    /** Starts a read transaction. It sees the collection as of now. */
    async function openSnapshot (): Promise<Snapshot> {
      // The pool has its own timeout. With a second one, a connection that arrives later would be lost.
      const client = await connect('lists').catch(error => { throw failure(error) })
      const free = () => { client.query('rollback').then(() => client.release(), error => client.release(error)) }
      try {
        // The first statement determines what the transaction sees.
        await answer(client.query(`
          begin isolation level repeatable read read only;
          set local statement_timeout = ${timeout};
          set local idle_in_transaction_session_timeout = ${timeout * stalledListTimeouts * 2};
          select 1`))
      } catch (error) {
        free()
        throw error
      }
      return {
        select: async (...values) => (await answer(client.query<Row>({ ...unnamed(selectPiece), values }))).rows.map(decoded),
        selectEnd: async (...values) => (await answer(client.query<Row>({ ...unnamed(selectEnd), values }))).rows,
        free
      }
    }
  }

  async function start () {
    try {
      await prepareOnce()
    } catch (error) {
      if (!isUnreachable(error)) throw startupError(error)
      onUnavailable?.(error)
    }
  }

  function prepareOnce () {
    preparing ??= prepare().finally(() => { preparing = undefined })
    return preparing
  }

  /** Creates or upgrades all tables in one transaction, and checks the privileges of the role. */
  async function prepare () {
    const client = new pg.Client(login)
    client.on('error', () => {})
    try {
      await client.connect()
      // A connection pooler may accept the login and then wait for a server, so the first statement has a limit. Upgrades have none.
      const limit = { query_timeout: timeout } // an option that the types of pg do not have
      await client.query({ text: `begin; set local lock_timeout = ${timeout}`, ...limit })
      await client.query(`select ${lock('migrations', timeout)}`) // instances that start at the same time wait for each other
      await rejectReadOnly(client)
      const query = async (sql: string) => (await client.query(sql)).rows
      const [row] = await query("select to_regclass('collections') is null as \"isNew\"")
      const created = await migrate(query, row.isNew, [...opened.map(({ table }) => table), idempotencyTable, lastIdsTable, postgresChangesTable])
      for (const { table, seed } of opened) if (created.includes(table.name)) await seed(client)
      for (const [counters, setup] of [['last_ids', lastIdOf], ['collection_changes', changesOf]] as const) {
        const names = (await query(`select collection from ${counters}`)).map(({ collection }) => collection)
        for (const { table: { name } } of opened) if (!names.includes(name)) await query(setup(name))
      }
      await client.query(probe)
      for (const { statements } of opened) for (const statement of statements) await client.query(explain(statement))
      await client.query('commit')
      isPrepared = true
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Throws unless a write would succeed: the server must be writable, and the tables must have the expected columns. */
  async function check () {
    try {
      await query(probe)
      for (const { statements } of opened) for (const statement of statements) await query(explain(statement))
    } catch (error) {
      if (error instanceof StoreUnavailableError) throw error
      onUnavailable?.(error)
      throw new StoreUnavailableError(error)
    }
  }

  function connections () {
    return { queries: poolUsage(pools.queries), lists: poolUsage(pools.lists) }
  }

  async function close () {
    await cleanup.stop()
    await endOf(pools)
  }

  function newPools () {
    const limits = { ...login, query_timeout: timeout, onConnect: rejectReadOnly }
    const pools = {
      queries: new pg.Pool({ ...limits, max: Math.ceil(poolSize / 2) }),
      // A long list holds its connection while the client reads, so lists have their own pool.
      lists: new pg.Pool({ ...limits, max: Math.max(1, Math.floor(poolSize / 2)) })
    }
    for (const pool of [pools.queries, pools.lists]) {
      // A lost connection fails its query. If it is idle, the pool replaces it.
      pool.on('error', () => {})
      pool.on('connect', client => client.on('error', () => {}))
    }
    return pools
  }

  /** Replaces all connections, because they lead to a standby or have statements that are out of date. */
  function retire (used: typeof pools) {
    if (used !== pools) return
    pools = newPools()
    endWhenUnused(used).catch(() => {})
  }

  /** Ends pools after all calls that wait for a connection have one. A pool that is ended does not serve them. */
  async function endWhenUnused (used: typeof pools) {
    while (used.queries.waitingCount + used.lists.waitingCount > 0) await sleep(10)
    await endOf(used)
  }

  async function endOf ({ queries, lists }: typeof pools) {
    await Promise.all([queries.end(), lists.end()])
  }

  function query (config: pg.QueryArrayConfig): Promise<pg.QueryArrayResult>
  function query (config: string): Promise<pg.QueryResult>
  function query (config: string | pg.QueryArrayConfig) {
    return answer(run(config))
  }

  /** Runs a statement. If it failed without effect and can succeed the next time, it runs it again. */
  async function run (config: string | pg.QueryArrayConfig) {
    if (!isPrepared) await prepareOnce()
    const deadline = Date.now() + timeout
    for (;;) {
      const used = pools
      const client = await connect('queries')
      try {
        const result = await client.query(typeof config === 'string' || usesNames ? config : unnamed(config))
        client.release()
        return result
      } catch (error) {
        if (!(error instanceof pg.DatabaseError)) cancel(client)
        client.release(!(error instanceof pg.DatabaseError && error.severity === 'ERROR'))
        if (isOutOfDate(error)) retire(used)
        if (isUnknownStatement(error)) usesNames = false
        if (Date.now() > deadline || !(isOutOfDate(error) || isUnknownStatement(error) || isSerializationFailure(error))) throw error
        await sleep(Math.random() * 10)
      }
    }
  }

  /** A connection from a pool. If the server does not allow more connections, it waits for one. */
  async function connect (pool: keyof typeof pools) {
    const deadline = Date.now() + timeout
    for (;;) {
      try {
        return await pools[pool].connect()
      } catch (error) {
        if (codeOf(error) !== '53300' || Date.now() > deadline) throw error
        const other = pool === 'lists' ? pools.queries : pools.lists
        if (other.idleCount > 0) (await other.connect()).release(true) // closes a connection that is not used
        await sleep(20)
      }
    }
  }

  /** Waits for a result, not longer than the timeout, and converts errors. */
  async function answer<R> (pending: Promise<R>) {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`The database did not answer within ${timeout} ms (DATABASE_TIMEOUT)`)), timeout)
    })
    return Promise.race([pending, late])
      .catch(error => { throw failure(error) })
      .finally(() => clearTimeout(timer))
  }

  /** Converts errors that may be temporary. Rejected data, invalid statements and internal errors of the server are not. */
  function failure (error: unknown) {
    if (isRefusal(error) || error instanceof NotStorableError || /^(42|XX)/.test(codeOf(error))) return error
    onUnavailable?.(error)
    return new StoreUnavailableError(error)
  }
}

/** A write without effect, which fails on a read-only server. */
const probe = 'delete from idempotency_keys where false'

async function rejectReadOnly (client: pg.ClientBase) {
  const { rows: [row] } = await client.query({ text: 'show transaction_read_only', rowMode: 'array' })
  if (row?.[0] === 'on') throw new ReadOnlyError('The server in DATABASE_URL is read-only (a standby)')
}

/** The driver does not support several hosts, and would report a URL that it cannot parse with the password in it. */
function checkUrl (url: string) {
  if (/^\w+:\/\/([^/?#@]*@)?[^/?#@]*,/.test(url)) throw new StartupError('DATABASE_URL must have one host, because the driver does not support several. Use a proxy or a DNS name that leads to the primary.')
  if (!URL.canParse(url)) throw new StartupError('DATABASE_URL is not a valid URL. Percent-encode special characters in the user name and password, such as %23 for #.')
}

/** A prepared statement. Its name depends on its text, so that releases that share a connection pooler do not mix theirs up. */
function statement (text: string) {
  return { name: createHash('sha256').update(text).digest('base64url').slice(0, 32), text, rowMode: 'array' as const }
}

function unnamed (config: pg.QueryArrayConfig) {
  return { ...config, name: undefined }
}

function explain ({ text, values }: pg.QueryArrayConfig) {
  return { text: `explain ${text}`, values, rowMode: 'array' as const }
}

/** The table of a collection. */
export function postgresTable (collection: Collection<HasId>): Table {
  const { table, definition } = tableOf(collection)
  return {
    name: collection.name,
    upgrades: collection.upgrades,
    creation: [
      `create table ${table} (position bigint generated always as identity primary key, ${definition})`,
      `create index on ${table} (id, position)`
    ]
  }
}

/** Adds the last generated id of a collection. */
export function lastIdOf (name: string) {
  return `insert into last_ids values ('${name}', 0)`
}

/** The table with the number of changes, and the trigger function that counts them. */
export const postgresChangesTable: Table = {
  ...changesTable,
  creation: [
    ...changesTable.creation,
    `create function count_change() returns trigger language plpgsql security definer set search_path = '' as $$
      begin
        execute format('update %I.collection_changes set changes = changes + 1 where collection = %L', tg_table_schema, tg_table_name);
        return null;
      end $$`
  ]
}

/** Counts the changes of a collection from now on. */
export function changesOf (name: string) {
  return `insert into collection_changes values ('${name}', floor(random() * ${changesStart}));
    create trigger count_changes after update or delete or truncate on "${name}" for each statement execute function count_change()`
}

/** An expression that waits for an advisory lock, not longer than the timeout. The lock is held until the end of the transaction. */
function lock (name: string, timeout: number) {
  return `set_config('lock_timeout', '${timeout}', true), pg_advisory_xact_lock(hashtext('fastify-items-users'), hashtext(concat(current_schema(), '.${name}')))`
}

/** Asks the server to cancel the statement of a TCP connection. Closing the connection alone would not stop it. */
function cancel (client: pg.PoolClient & { host?: string, port?: number, processID?: number, secretKey?: number }) {
  const { host = '', port = 0, processID = 0, secretKey = 0 } = client
  const request = Buffer.alloc(16)
  for (const [n, value] of [16, 80877102, processID, secretKey].entries()) request.writeInt32BE(value, n * 4)
  connectSocket(port, host).on('error', () => {}).end(request)
}

function poolUsage ({ totalCount, idleCount, waitingCount }: pg.Pool) {
  return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount }
}
