import { collection as items } from '../plugins/items.js'
import { changesOf, lastIdOf, postgresChangesTable, postgresTable } from '../plugins/stores/postgres.js'
import { idempotencyTable, lastIdsTable, migrate } from '../plugins/stores/sql-table.js'
import { collection as users } from '../plugins/users.js'

/** The statements of an administrator: the tables, their first records, and a role that can only read and write rows. */
export async function schemaSql () {
  const statements: string[] = []
  const record = (sql: string) => {
    if (!sql.startsWith('select')) statements.push(sql)
    return []
  }
  await migrate(record, true, [postgresTable(items), postgresTable(users), idempotencyTable, lastIdsTable, postgresChangesTable])
  for (const { name, seed } of [items, users]) {
    for (const first of seed) {
      const values = Object.values(first).map(value => typeof value === 'string' ? `'${value}'` : value)
      statements.push(`insert into ${name} (${Object.keys(first).join(', ')}) values (${values.join(', ')})`)
    }
    statements.push(lastIdOf(name), changesOf(name))
  }
  return `-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
-- Written by npm run schema.
begin;
${statements.map(sql => `${sql.replaceAll(/\s+/g, ' ')};`).join('\n')}
create role items_users;
grant select on collections, collection_changes to items_users;
grant select, insert, delete on items, users to items_users;
grant select, insert, update, delete on idempotency_keys to items_users;
grant select, update on last_ids to items_users;
commit;
`
}
