import { checkDefinition, type Definition } from '../plugins/collection/definition.js'
import { postgresTable, postgresTables } from '../plugins/stores/postgres/statements.js'
import { migrate } from '../plugins/stores/sql/migrations.js'
import { literal } from '../plugins/stores/sql/table.js'

/** The statements of an administrator: the tables, their first records, and a role that can only read and write rows. */
export async function schemaSql (definitions: readonly Definition[]) {
  const collections = definitions.map(definition => ({ ...checkDefinition(definition), ...postgresTable(checkDefinition(definition), 0) }))
  const statements: string[] = []
  await migrate(function record (sql: string) {
    if (!sql.startsWith('select')) statements.push(sql.replaceAll(/\n\s*/g, ' '))
    return []
  }, true, postgresTables, collections.map(({ created }) => created))
  for (const { table, columns, seed, valuesOf } of collections) {
    for (const record of seed) statements.push(`insert into ${table} (${columns}) values (${valuesOf(record).map(value => value === null ? 'null' : literal(String(value))).join(', ')})`)
  }
  return `-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
-- Written by npm run schema.
begin;
${statements.map(sql => `${sql};`).join('\n')}
create role items_users;
grant select on collections, collection_changes to items_users;
grant select, insert, update, delete on idempotency_keys, ${collections.map(({ table }) => table).join(', ')} to items_users;
grant select, update on last_ids to items_users;
commit;
`
}
