import type { Collection, Reference } from '../collection.js'
import { keyLifetime, type KeyUse, type Questions, type Transaction, type Writes } from '../engine.js'
import type { FieldType } from '../fields.js'
import type { Value } from '../query.js'
import type { Id } from '../store.js'
import { StoreUnavailableError } from '../store-errors.js'
import { quoted, type Connection } from './connection.js'
import { readerOn } from './reader.js'
import { insertRows, updateRows } from './rows.js'
import { columnName, tableFor } from './tables.js'

/** How many expired idempotency keys are removed when others are added. */
const expiredAtOnce = 100

/** A transaction on a connection. Statements that do not depend on each other are sent together. */
export function transactionOn (connection: Connection): Transaction {
  const writing: Promise<unknown>[] = []
  return {
    ...readerOn(connection),
    look: (collection, questions) => look(connection, collection, questions),
    rows: (collection, ids) => firstRows(connection, collection, ids),
    write (collection, writes) {
      const written = writeAll(connection, collection, writes)
      written.catch(() => {}) // the end of the transaction reports it
      writing.push(written)
    },
    written: () => Promise.all(writing)
  }
}

async function look (connection: Connection, collection: Collection, questions: Questions) {
  const { name, references } = collection
  const lock = connection.dialect.lock(' order by stored.id for key share of stored')
  const typeOf = (target: string) => typeIn(collection, references.find(([, other]) => other === target)?.[0])
  const [counter, taken, existing, referred, keys] = await Promise.all([
    counterOf(connection, collection),
    selected(questions.taken, (field, values) => holders(connection, name, field, typeIn(collection, field), values)),
    selected(questions.existing, (target, ids) => holders(connection, target, 'id', typeOf(target), ids, lock)),
    referredIds(connection, collection, questions.referrers, questions.referred),
    keyUses(connection, collection, questions.keys)
  ])
  return { counter, taken, existing, referred, keys }
}

function typeIn ({ fields }: Collection, name = 'id') {
  return fields.find(field => field.name === name)?.type ?? 'integer'
}

/** Other transactions that insert into the collection wait until this one ends. */
async function counterOf ({ run, dialect }: Connection, collection: Collection) {
  const counter = `select position, last_id, digest from collections where name = ${dialect.parameter(1)}`
  const [row] = await run(counter + dialect.lock(' for update'), [collection.name])
  if (row?.digest !== tableFor(collection).digest) throw newerSchema(collection)
  return { position: Number(row.position), lastId: Number(row.last_id) }
}

/** The values of each name that are found. */
async function selected (
  asked: Map<string, Set<Value>>,
  find: (name: string, values: Value[]) => Promise<Value[]>
) {
  const found = Array.from(asked, async ([name, values]) => [name, new Set(await find(name, [...values]))] as const)
  return new Map(await Promise.all(found))
}

/** The values that records of a collection have in a field. */
async function holders (
  { runFor, dialect }: Connection,
  collection: string,
  field: string,
  type: FieldType,
  values: Value[],
  clause = ''
) {
  const columns = { n: 'int', value: dialect.types[type] }
  const rows = await runFor({ columns, rows: values.map((value, n) => [n, value]) }, given =>
    `select given.n from ${given}
    join ${quoted(collection)} as stored on stored.${columnName(field)} = given.value${clause}`)
  return rows.map(({ n }) => values[Number(n)])
}

/** The ids that records other than themselves refer to, each with the collection of such a record. */
async function referredIds (connection: Connection, collection: Collection, referrers: Reference[], ids: Id[]) {
  const type = typeIn(collection)
  const found = referrers.map(async ({ collection: referrer, field }) => {
    const others = referrer === collection.name ? ' and stored.id <> given.value' : ''
    const referred = await holders(connection, referrer, field, type, ids, others)
    return referred.map(id => [id as Id, referrer] as const)
  })
  return new Map((await Promise.all(found)).flat())
}

async function keyUses ({ runFor }: Connection, { name }: Collection, keys: string[]) {
  const rows = await runFor({ columns: { key: 'text' }, rows: keys.map(key => [key]) }, (given, collection, from) =>
    `select stored.key, stored.digest, stored.response
    from ${given} join idempotency_keys as stored on stored.key = given.key
    where stored.collection = ${collection} and stored.at >= ${from}`,
  [name, Date.now() - keyLifetime])
  return new Map(rows.map(row => [String(row.key), row as unknown as KeyUse]))
}

async function firstRows ({ runFor, dialect }: Connection, collection: Collection, ids: Id[]) {
  const table = quoted(collection.name)
  const given = { columns: { id: dialect.types[typeIn(collection)] }, rows: ids.map(id => [id]) }
  const rows = await runFor(given, given =>
    `select stored.position, stored.id, stored.record from ${given}
    join ${table} as stored on stored.position = (select min(position) from ${table} as other where other.id = given.id)
    order by stored.position${dialect.lock(' for no key update of stored')}`)
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
    keepKeys(connection, collection, writes.keys),
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

async function removeRows ({ runFor, dialect }: Connection, collection: Collection, positions: number[]) {
  const { name, table, digest } = tableFor(collection)
  const given = { columns: { position: dialect.positionType }, rows: positions.map(position => [position]) }
  return runFor(given, (given, ...current) =>
    `delete from ${table} where position in (select given.position from ${given}) and ${isCurrent(...current)}
    returning 1 as written`,
  [name, digest])
}

async function keepKeys ({ run, runFor, dialect }: Connection, { name }: Collection, uses: KeyUse[]) {
  const columns = { key: 'text', digest: 'text', response: 'text' }
  const rows = uses.map(({ key, digest, response }) => [key, digest, response])
  await Promise.all([
    runFor({ columns, rows }, (given, collection, at) =>
      `insert into idempotency_keys (key, collection, digest, response, at)
      select given.key, ${collection}, given.digest, given.response, ${at} from ${given} where true
      on conflict (key, collection) do update
      set digest = excluded.digest, response = excluded.response, at = excluded.at`,
    [name, Date.now()]),
    uses.length > 0 && run(
      `delete from idempotency_keys where (key, collection) in (
        select key, collection from idempotency_keys where at < ${dialect.parameter(1)}
        order by at limit ${expiredAtOnce}${dialect.lock(' for update skip locked')})`,
      [Date.now() - keyLifetime])
  ])
}
