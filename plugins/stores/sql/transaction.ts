import type { Collection, Reference } from '../collection.js'
import { keyLifetime, type KeyUse, type Questions, type Transaction, type Writes } from '../engine.js'
import type { FieldType } from '../indexed-fields.js'
import type { Value } from '../query-plan.js'
import type { Id } from '../store.js'
import { StoreUnavailableError } from '../store-errors.js'
import { quoted, type Connection } from './connection.js'
import { SqlReader } from './reader.js'
import { insertRows, updateRows } from './rows.js'
import { columnName, tableFor } from './tables.js'

/** How many expired idempotency keys are removed when others are added. */
const expiredAtOnce = 100

/** A transaction on a connection. Statements are sent together if none needs the result of another one. */
export class SqlTransaction extends SqlReader implements Transaction {
  private readonly writing: Promise<unknown>[] = []

  async look (collection: Collection, questions: Questions) {
    const { connection } = this
    const lock = connection.dialect.lock(' order by stored.id for key share of stored')
    // The first statement locks the collection, so that what the others find stays true until the end.
    const whenLocked = counterOf(connection, collection)
    const [counter, taken, existing, referred, keys] = await Promise.all([
      whenLocked,
      valuesFound(questions.taken, (field, values) =>
        holders(connection, { collection: collection.name, field, type: typeIn(collection, field) }, values)),
      valuesFound(questions.existing, (target, ids) =>
        holders(connection, {
          collection: target, field: 'id', type: typeOfTarget(collection, target), rest: lock
        }, ids)),
      referredIds(connection, collection, questions.referrers, questions.referred),
      keyUses(connection, collection, questions.keys)
    ])
    return { counter, taken, existing, referred, keys }
  }

  rows (collection: Collection, ids: Id[]) {
    return firstRows(this.connection, collection, ids)
  }

  write (collection: Collection, writes: Writes) {
    const written = writeAll(this.connection, collection, writes)
    written.catch(() => {}) // the end of the transaction reports it
    this.writing.push(written)
  }

  written () {
    return Promise.all(this.writing)
  }
}

function typeIn ({ fields }: Collection, name = 'id') {
  return fields.find(field => field.name === name)?.type ?? 'integer'
}

/** The type of the ids of a collection that this one refers to. */
function typeOfTarget (collection: Collection, target: string) {
  return typeIn(collection, collection.references.find(([, other]) => other === target)?.[0])
}

/** Other transactions that insert into the collection wait until this one ends. */
async function counterOf ({ one, dialect }: Connection, collection: Collection) {
  const counter = `select position, last_id, digest from collections where name = ${dialect.parameter(1)}`
  const row = await one(counter + dialect.lock(' for update'), [collection.name])
  if (row?.digest !== tableFor(collection).digest) throw newerSchema(collection)
  return { position: Number(row.position), lastId: Number(row.last_id) }
}

/** The values of each name that are found. */
async function valuesFound (
  asked: Map<string, Set<Value>>,
  find: (name: string, values: Value[]) => Promise<Value[]>
) {
  const searches = Array.from(asked, async ([name, values]) => [name, new Set(await find(name, [...values]))] as const)
  return new Map(await Promise.all(searches))
}

/** A field of a collection, and the rest of the statement that reads it. */
interface Held {
  collection: string
  field: string
  type: FieldType
  rest?: string
}

/** The values that records have in a field. */
async function holders ({ runFor, dialect }: Connection, held: Held, values: Value[]) {
  const { collection, field, type, rest = '' } = held
  const rowsOfValues = values.map((value, n) => [n, value])
  const rows = await runFor(`holders ${collection} ${field} ${rest}`, rowsOfValues, () => ({
    columns: { n: 'int', value: dialect.types[type] },
    text: input => `select ${input.column('n')} as n from ${quoted(collection)} as stored${input.table(',')}
      where stored.${columnName(field)} = ${input.column('value')}${rest}`
  }))
  return rows.map(({ n }) => values[Number(n)])
}

/** The ids that records other than themselves refer to, each with the collection of such a record. */
async function referredIds (connection: Connection, collection: Collection, referrers: Reference[], ids: Id[]) {
  const type = typeIn(collection)
  const searches = referrers.map(async ({ collection: referrer, field }) => {
    const rest = referrer === collection.name ? ` and stored.id <> stored.${columnName(field)}` : ''
    const referred = await holders(connection, { collection: referrer, field, type, rest }, ids)
    return referred.map(id => [id as Id, referrer] as const)
  })
  return new Map((await Promise.all(searches)).flat())
}

async function keyUses ({ runFor }: Connection, { name }: Collection, keys: string[]) {
  const rows = await runFor('keys', keys.map(key => [key]), () => ({
    columns: { key: 'text' },
    text: (input, $collection, $validFrom) => `select stored.key, stored.digest, stored.response
      from idempotency_keys as stored${input.table(',')}
      where stored.key = ${input.column('key')} and stored.collection = ${$collection} and stored.at >= ${$validFrom}`
  }), [name, Date.now() - keyLifetime])
  return new Map(rows.map(({ key, digest, response }) =>
    [String(key), { key: String(key), digest: String(digest), response: String(response) }]))
}

async function firstRows ({ runFor, dialect }: Connection, collection: Collection, ids: Id[]) {
  const rows = await runFor(`rows ${collection.name}`, ids.map(id => [id]), () => ({
    columns: { id: dialect.types[typeIn(collection)] },
    text: input => `select stored.position, stored.id, stored.record from ${input.table('', ', lateral')} (
      select position, id, record from ${quoted(collection.name)} where id = ${input.column('id')}
      order by position limit 1${dialect.lock(' for no key update')}) as stored`
  }))
  return rows.map(({ position, id, record }) => ({ position: Number(position), id: id as Id, json: String(record) }))
}

async function writeAll (connection: Connection, collection: Collection, writes: Writes) {
  const { run, dialect: { parameter } } = connection
  const { updates, removes, counter } = writes
  const table = tableFor(collection)
  const [updated, removed] = await Promise.all([
    updateRows(connection, table, updates, isCurrent),
    removeRows(connection, collection, removes),
    insertRows(connection, table, writes.inserts),
    writes.keys.length > 0 && keepKeys(connection, collection, writes.keys),
    counter && run(
      `update collections set position = ${parameter(1)}, last_id = ${parameter(2)} where name = ${parameter(3)}`,
      [counter.position, counter.lastId, collection.name])
  ])
  if (updated.length + removed.length < updates.length + removes.length) throw newerSchema(collection)
}

/** A change writes only while the schema of this release is the newest one. */
function isCurrent (name = '', digest = '') {
  return `(select digest from collections where name = ${name}) = ${digest}`
}

function newerSchema ({ name }: Collection) {
  return new StoreUnavailableError(new Error(`A newer release has changed the schema of ${name}`))
}

function removeRows ({ runFor, dialect }: Connection, collection: Collection, positions: number[]) {
  const { name, table, digest } = tableFor(collection)
  return runFor(`remove ${name}`, positions.map(position => [position]), () => ({
    columns: { position: dialect.positionType },
    text: (input, ...current) => `delete from ${table} as stored ${input.table('using')}
      where stored.position = ${input.column('position')} and ${isCurrent(...current)} returning 1 as written`
  }), [name, digest])
}

/** Keeps responses, and removes some expired ones. */
async function keepKeys ({ run, runFor, dialect }: Connection, { name }: Collection, uses: KeyUse[]) {
  const rows = uses.map(({ key, digest, response }) => [key, digest, response])
  const expired = `select key, collection from idempotency_keys where at < ${dialect.parameter(1)}
    order by at limit ${expiredAtOnce}${dialect.lock(' for update skip locked')}`
  await Promise.all([
    runFor('keep keys', rows, () => ({
      columns: { key: 'text', digest: 'text', response: 'text' },
      text: (input, $collection, $at) => `insert into idempotency_keys (key, collection, digest, response, at)
        select ${input.column('key')}, ${$collection}, ${input.column('digest')}, ${input.column('response')}, ${$at}
        ${input.table('from')} where true
        on conflict (key, collection) do update
        set digest = excluded.digest, response = excluded.response, at = excluded.at`
    }), [name, Date.now()]),
    run(`delete from idempotency_keys where (key, collection) in (${expired})`, [Date.now() - keyLifetime])
  ])
}
