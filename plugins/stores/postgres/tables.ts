import { StartupError } from '../../startup.js'
import type { FieldType } from '../fields.js'
import { ownName, type ActualColumn, type Change, type Database } from '../sql/database.js'
import { sharedTables } from '../sql/migrations.js'
import { literal, quoted, type Dialect, type Index, type Table } from '../sql/table.js'
import type { MaybePromise } from '../store.js'

export const dialect: Dialect = {
  conditions: {
    integer: column => `${column} >= ${Number.MIN_SAFE_INTEGER} and ${column} <= ${Number.MAX_SAFE_INTEGER}`,
    number: column => `abs(${column}) < 'Infinity'` // NaN is larger
  },
  random: below => `floor(random() * ${below})`,
  parameter: (n, columnType) => `$${n}::${columnType}`,
  isPresent: column => `${column} is not null`,
  byCodePoint: column => `${column} collate "C"`,
  hasKeysInTable: false, // the other table may be created later
  withoutIndex: column => column // it has statistics, and does not block the process
}

/**
 * The trigger function that counts changes. A collection has several counters, because a transaction holds its counter until
 * it ends: it uses one that no other transaction holds, or a new one.
 */
const countFunction = `create or replace function count_change() returns trigger language plpgsql security definer set search_path = '' as $$
    declare
      counted integer;
    begin
      execute format('update %1$I.collection_changes set changes = changes + 1 where counter = (
        select counter from %1$I.collection_changes where collection = %2$L limit 1 for update skip locked)', tg_table_schema, tg_table_name);
      get diagnostics counted = row_count;
      if counted = 0 then
        execute format('insert into %I.collection_changes values (%L, 1)', tg_table_schema, tg_table_name);
      end if;
      return null;
    end $$`

/** Turns the one counter of each collection into several. */
export const changeCounters = [
  'alter table collection_changes drop constraint collection_changes_pkey, add column counter bigint generated always as identity primary key',
  countFunction
]

/** The tables that all collections share, and an index for expired keys. */
export const postgresTables = [...sharedTables, 'create index idempotency_keys_by_age on idempotency_keys (at)', ...changeCounters]

/** Creates the trigger that counts the changes of a table. */
export function triggerOf (table: string) {
  return `create trigger count_changes after update or delete or truncate on ${table} for each statement execute function count_change()`
}

/** A PostgreSQL database for `migrate`. */
export function postgresDatabase (query: Database['query'], run: Database['run']): Database {
  return { kind: 'postgres', query, run, read, alter, complete, foreignKeys, mayRecord: () => isTrue("has_table_privilege('collections', 'update')") }

  async function read ({ name, table, columns, position }: Table) {
    const rows = await query(`
      select attname, format_type(atttypid, atttypmod), attnotnull, attidentity <> '', pg_get_expr(adbin, adrelid), (
        select json_agg(json_build_object('name', conname, 'sql', pg_get_expr(conbin, conrelid)) order by pg_constraint.oid)
        from pg_constraint where conrelid = attrelid and contype = 'c' and conkey = array[attnum])
      from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
      where attrelid = to_regclass(${literal(table)}) and attnum > 0 and not attisdropped order by attnum`) as
      [string, string, boolean, boolean, string | null, ActualColumn['checks'] | null][]
    if (!rows.some(([column, , , isIdentity]) => column === 'position' && isIdentity)) {
      throw new StartupError(`The table ${name} in the option store must have a column position that is ${position}.`)
    }
    return new Map(rows.map(([column, type, isRequired, , value, found]): [string, ActualColumn] => {
      const needed = columns.find(({ name }) => name === column)
      const checks = found ?? []
      const fits = needed !== undefined && isType(type, needed.columnType) && (!needed.check || checks.some(({ sql }) => isCheck(sql, needed.column, needed.check)))
      return [column, { type, isRequired, default: value ?? undefined, fits, checks }]
    }))
  }

  /** Changes all columns in one statement, so that the table is rewritten at most once. A check of a new column need not be validated. */
  async function alter ({ table }: Table, changes: Change[]) {
    const steps: string[] = []
    const required: string[] = []
    for (const { column: { column, columnType, type, isOptional, check, default: value }, has, from = type, hasValueList } of changes) {
      const defaultSql = value === undefined ? '' : ` default ${value}`
      if (!has) {
        steps.push(`add column ${column} ${columnType}${isOptional ? '' : ' not null'}${defaultSql}`, ...check ? [`add check (${check}) not valid`] : [])
        continue
      }
      const isConverted = from !== type || !isType(has.type, columnType)
      // Only the oldest check of a column is ours. It depends on the type, and in a previous release also on the values.
      const [own] = has.checks
      const isObsolete = own && (hasValueList || (from !== type && isCheck(own.sql, column, dialect.conditions[from]?.(column))))
      if (isObsolete) steps.push(`drop constraint ${quoted(own.name)}`)
      if (isConverted) steps.push(`alter column ${column} drop default, alter column ${column} type ${columnType} using ${converted(column, columnType, type, from)}`)
      if (value !== undefined) steps.push(`alter column ${column} set${defaultSql}`)
      if (check && !has.checks.some(({ sql }) => !(isObsolete && own.sql === sql) && isCheck(sql, column, check))) steps.push(`add check (${check})`)
      if (isOptional && has.isRequired) steps.push(`alter column ${column} drop not null`)
      if (isOptional || has.isRequired) continue
      if (value !== undefined) required.push(`update ${table} set ${column} = ${value} where ${column} is null`)
      required.push(`alter table ${table} alter column ${column} set not null`)
    }
    await run(['set local extra_float_digits = 1', ...steps.length > 0 ? [`alter table ${table} ${steps.join(', ')}`] : [], ...required].join('; '))
  }

  async function complete ({ table, indexes }: Table, isPossible: (index: Index) => MaybePromise<boolean>) {
    const found = await query(`
      select relname, pg_get_indexdef(indexrelid) from pg_index join pg_class on pg_class.oid = indexrelid
      where indrelid = to_regclass(${literal(table)}) and indisvalid and not indisprimary and indpred is null`) as [string, string][]
    const missing = indexes.filter(({ columns, unique }) => !found.some(([, sql]) =>
      plain(sql).endsWith(plain(`using btree (${columns})`)) && (!unique || /^create unique/i.test(sql))))
    // The ids of the server are unique without their index, too.
    const isOther = missing.some(({ isGenerated }) => isGenerated) && !await isTrue(`pg_has_role(relowner, 'usage') from pg_class where oid = to_regclass(${literal(table)})`)
    for (const [name] of found) if (!isOther && ownName.test(name) && !indexes.some(index => index.name === name)) await run(`drop index ${quoted(name)}`)
    for (const index of missing) if (!(isOther && index.isGenerated) && await isPossible(index)) await run(index.sql)
    const [[hasFunction, hasTrigger] = []] = await query(`
      select to_regproc('count_change') is not null, exists (select from pg_trigger
        where tgrelid = to_regclass(${literal(table)}) and tgfoid = to_regproc('count_change')::oid and tgtype = 56 and tgenabled in ('O', 'A'))`)
    if (!hasFunction) await run(countFunction)
    if (!hasTrigger) await run(`drop trigger if exists count_changes on ${table}; ${triggerOf(table)}`)
  }

  async function foreignKeys (name: string) {
    const rows = await query(`select conname, relname from pg_constraint join pg_class on pg_class.oid = confrelid where conrelid = to_regclass(${literal(quoted(name))}) and contype = 'f'`)
    return rows.map(([key, target]) => ({ key: String(key), target: String(target) }))
  }

  async function isTrue (expression: string) {
    const [[value] = []] = await query(`select ${expression}`)
    return value === true
  }
}

/** An expression that converts the values of a column. */
function converted (column: string, columnType: string, to: FieldType, from: FieldType) {
  if (from !== to && to === 'json') return `to_json(${column})::text`
  return from !== to && from === 'json' ? `(${column}::json #>> '{}')::${columnType}` : `${column}::${columnType}`
}

/** Returns whether a column has a type, or that of a text with a maximum length. */
function isType (type: string, needed: string) {
  return type === needed || (needed === 'text' && type.startsWith('character varying'))
}

/** Returns whether a check of a column is the needed one. It is the same for optional and required columns, because null is never rejected. */
function isCheck (sql: string, column: string, needed = '') {
  const [actual, expected] = [sql, needed].map(sql => plain(sql).replace(plain(`${column} is null or`), ''))
  return actual === expected
}

/** SQL without what PostgreSQL adds to it: types, brackets, quotes and spaces. */
function plain (sql: string) {
  return sql.toLowerCase().replaceAll(/::[a-z ]+|[()'"\s]/g, '')
}
