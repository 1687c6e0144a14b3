import type { FieldType } from '../fields.js'
import { digestOf } from '../idempotency.js'
import { listStatements } from '../sql/queries.js'
import { tableOf, type Row, type Table } from '../sql/table.js'
import { generatedIds, maxCountedId, type HasId, type StoreDefinition } from '../store.js'
import { dialect, triggerOf } from './tables.js'

/** The table of a collection, with its types and statements. */
export function postgresTable<T extends HasId> (collection: StoreDefinition<T>, timeout: number) {
  const { name } = collection
  const ids = generatedIds(collection)
  const sqlTable = tableOf(collection, dialect)
  const { table, fields } = sqlTable
  const types = fields.map(({ columnType }) => columnType)
  // The text of a double precision depends on extra_float_digits, so it is read as the hexadecimal digits of its bytes. (With the name of the column, lists would be sorted by these.)
  const selectedAs = ({ column, type }: { column: string, type: FieldType }) => type === 'number' ? `encode(float8send(${column}), 'hex')` : column
  const selected = fields.map(selectedAs).join(', ')
  const decoded = (value: unknown, type?: FieldType) => type === 'number' && typeof value === 'string' ? Buffer.from(value, 'hex').readDoubleBE() : value
  const timeLeft = `$${types.length + 4}::int`
  const unchanged = `select _given.* from ${table} as t, _given where t.position = _given._position and t.xmin::text = _given._version`

  return {
    ...sqlTable,

    // No collection has a name with a colon, so these names are free.
    created: sqlTable.tableWith(`bigint generated always as identity (sequence name "${name}:position") constraint "${name}:key" primary key`,
      'id, position', ids.lastUsed, triggerOf(table)),

    columnsOf,
    insertion: insertionInto(sqlTable, name, ids, timeout),
    ...listStatements(sqlTable, dialect, selectedAs, decoded),
    encodeRow: (row: Row) => sqlTable.encodeRow(row.map((value, n) => decoded(value, fields[n]?.type))),

    /** The first records with some ids, each with its position, its row version, the last transaction that held it, and the place of its id. */
    selectFirsts: statement(`
      select found.*, asked.place from unnest($1::bigint[]) with ordinality as asked (id, place),
      lateral (select ${selected}, position, xmin::text, xmax::text from ${table} as t where t.id = asked.id order by position limit 1) as found`),

    selectVersion: statement(sqlTable.versionSelection(selected)),

    /**
     * Replaces or removes records if they have not changed since they were read. It leaves out records that another transaction
     * holds, and all if it has waited longer than so many milliseconds. Since PostgreSQL 17, it is also ended then, unless it is
     * committing. Returns the positions of the others, and whether their records were changed. If a trigger skips a record, the
     * statement fails because of a division by zero.
     */
    change: statement(`
      with _limit as materialized (
        select ${['lock_timeout', 'transaction_timeout'].map(name => `case when current_setting('${name}', true) <> '' then set_config('${name}', greatest(${timeLeft}, 1)::text, true) end`)}
      ),
      _given as materialized (
        select given.* from _limit, unnest(${arrays([...types, 'bigint', 'text', 'boolean'])}) as given (${fields.map((_, n) => `_${n}`).join(', ')}, _position, _version, _isRemoved)
        where clock_timestamp() < now() + ${timeLeft} * interval '1 millisecond'
      ),
      _kept as materialized (${unchanged} and not _given._isRemoved for no key update of t skip locked),
      _gone as materialized (${unchanged} and _given._isRemoved for update of t skip locked),
      _replaced as (
        update ${table} as t set ${fields.map(({ column }, n) => `${column} = _kept._${n}`).join(', ')}
        from _kept where t.position = _kept._position returning t.position
      ),
      _removed as (delete from ${table} as t using _gone where t.position = _gone._position returning t.position),
      _changed as (select position from _replaced union all select position from _removed)
      select _given._position, held._position is not null, 1 / (held._position is null or _given._position in (select position from _changed))::int
      from _given left join (select _position from _kept union all select _position from _gone) as held on held._position = _given._position`),

    /** The previous uses of keys. The update makes the transaction wait for the same replication as a new record. */
    confirmUses: statement(`
      update idempotency_keys set at = at where collection = '${name}' and key = any($1::text[]) and at >= $2::bigint returning key, digest, id`)
  }

  /** The columns of records as arrays, with a column for the keys and one for the digests. */
  function columnsOf (inserts: { record?: object, key?: string, digest?: string }[], isKeyed = false): unknown[][] {
    const rows = inserts.map(({ record = {}, key, digest }) => [...sqlTable.valuesOf(record), key, digest])
    return Array.from({ length: fields.length + (isKeyed ? 2 : 0) }, (_, n) => rows.map(row => row[n]))
  }
}

/**
 * Returns a function that returns the statement that inserts records while it holds the lock of the collection, so that positions
 * are in order of commits: no record appears before one that has been visible already. The statement returns a row for each record
 * with its place, its id and whether it was inserted, unless there are neither generated ids nor keys.
 */
function insertionInto ({ table, columns, fields }: ReturnType<typeof tableOf>, name: string, ids: ReturnType<typeof generatedIds>, timeout: number) {
  return function insertion (isNumbered: boolean, isKeyed: boolean) {
    const given = [...fields.map(({ columnType }) => columnType), ...isKeyed ? ['text', 'text'] : []]
    const records = isNumbered ? '_numbered' : '_given'
    const keys = isKeyed ? ', _key, _digest' : ''
    const insertedOnly = isKeyed ? '_key is null or _key in (select key from _claimed)' : 'true'
    const insert = `insert into ${table} (${columns}) select ${columns} from ${records} where ${insertedOnly} order by _place`
    // The records get the next consecutive ids that no record has. The counter is locked until the end of the transaction.
    const numbering = `
      , _last as (select last_ids.id from last_ids, _lock where collection = '${name}' for update of last_ids),
      _following as (
        select count, generate_series(
          1 + greatest(id, ${ids.before}, (select max(id) from ${table} where id <= ${maxCountedId})), 1 + ${ids.maximum} - count) as id
        from _last, (select count(*) from _given) as counted
      ),
      _first as (
        select id from _following
        where (select min(taken.id) from ${table} as taken where taken.id between _following.id and _following.id + _following.count - 1) is null limit 1
      ),
      _numbered as materialized (select ${fields.map(({ name, column }) => name === 'id' ? '_first.id + _place - 1 as "id"' : column).join(', ')}${keys}, _place from _given, _first)`
    // Keys are stored if they are new or expired, each with its first record. The database decides which of several instances is the first.
    const claim = `
      , _claimed as (
        insert into idempotency_keys as used (collection, key, digest, id, at)
        select '${name}', _key, _digest, "id", $${given.length + 1}::bigint from ${records} where _digest is not null
        on conflict (collection, key) do update set digest = excluded.digest, id = excluded.id, at = excluded.at
        where used.at < $${given.length + 2}::bigint
        returning key
      )`
    const lastId = `(select max("id") from _numbered where ${insertedOnly})`
    return `
      with _lock as materialized (select ${lock(name, timeout)}),
      _given as materialized (
        select given.* from _lock, unnest(${arrays(given)}) with ordinality as given (${columns}${keys}, _place)
      )
      ${isNumbered ? numbering : ''}
      ${isKeyed ? claim : ''}
      ${isNumbered ? `, _counted as (update last_ids set id = greatest(id, ${lastId}) where collection = '${name}')` : ''}
      ${isNumbered || isKeyed ? `, _inserted as (${insert}) select _place, "id", ${insertedOnly} from ${records}` : insert}`
  }
}

/**
 * A small write that fails if the server is read-only, a standby does not confirm it, the disk is full, or a table or one of
 * its columns is missing. It returns the tables for which the role lacks a privilege.
 */
export function probe (tables: Table[], timeout: number) {
  const names = ['idempotency_keys', ...tables.map(({ table }) => table)]
  const privileges = ['select', 'insert', 'update'].map(privilege => `has_any_column_privilege(name, '${privilege}')`)
  // A write that waits for a standby holds the lock, so that at most one probe does. The series exceeds work_mem, so it is written to the disk.
  return `
    select ${lock('probe', timeout)}, set_config('work_mem', '64kB', true);
    update last_ids set id = id;
    select count(*) from generate_series(1, 10000);
    select changes from collection_changes limit 0;
    lock table ${names} in row exclusive mode;
    ${tables.map(({ table, columns }) => `select ${columns.map(({ column }) => column)} from ${table} limit 0;`).join('')}
    select name from unnest(array[${names.map(name => `'${name}'`)}]) as name where not (${privileges.join(' and ')} and has_table_privilege(name, 'delete'))`
}

/** A prepared statement. Its name depends on its text, so that releases that share a connection pooler do not mix theirs up. */
export function statement (text: string) {
  return { name: digestOf(text).slice(0, 32), text }
}

/** An expression that waits for an advisory lock, not longer than the timeout. The lock is held until the end of the transaction. */
export function lock (name: string, timeout: number) {
  return `set_config('lock_timeout', '${timeout}', true), pg_advisory_xact_lock(hashtext('fastify-items-users'), hashtext(concat(current_schema(), '.${name}')))`
}

/** Parameters that are arrays of these types. */
function arrays (types: string[]) {
  return types.map((type, n) => `$${n + 1}::${type}[]`).join(', ')
}
