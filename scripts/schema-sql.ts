import pg from 'pg'
import { checkDefinition, type Definition } from '../plugins/collection/definition.js'
import { postgresTable } from '../plugins/stores/postgres/statements.js'
import { postgresDatabase, postgresTables } from '../plugins/stores/postgres/tables.js'
import { migrate } from '../plugins/stores/sql/migrations.js'
import { sqlValue, type Row } from '../plugins/stores/sql/table.js'

/**
 * The statements of an administrator: the tables, their first records, and a role that can only read and write rows. For an
 * existing database, they are executed and rolled back.
 */
export async function schemaSql (definitions: readonly Definition[], url?: string) {
  const client = url === undefined ? undefined : new pg.Client(url)
  const statements: string[] = []
  const query = async (text: string) => (await client?.query<Row>({ text, rowMode: 'array' }))?.rows ?? []
  async function run (sql: string) {
    statements.push(`${sql.trim()};`)
    await client?.query(sql)
  }
  const tables = definitions.map(definition => {
    const { seed } = checkDefinition(definition)
    const { created, table, columns, valuesOf } = postgresTable(checkDefinition(definition), 0)
    return {
      ...created,
      async fill () {
        for (const record of seed) await run(`insert into ${table} (${columns}) values (${valuesOf(record).map(sqlValue).join(', ')})`)
      }
    }
  })
  const names = tables.map(({ table }) => table)
  await client?.connect()
  try {
    await query("begin; set local lock_timeout = '5s'")
    const isNew = (await query("select from pg_class where oid = to_regclass('collections')")).length === 0
    await migrate(postgresDatabase(query, run), isNew, postgresTables, tables, warning => statements.push(`-- ${warning}`))
    return `-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
-- Written by npm run schema.
begin;
${statements.join('\n')}
${isNew ? 'create role items_users;' : ''}
grant select on collections, collection_changes to items_users;
grant select, insert, update, delete on idempotency_keys, ${names.join(', ')} to items_users;
grant select, update on last_ids to items_users;
commit;
`
  } finally {
    await client?.end()
  }
}
