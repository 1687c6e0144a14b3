import { definitions } from '../../plugins/definitions.js'
import { checkDefinition, type Definition } from '../../plugins/definition/definition.js'
import { collectionOf, seedOf } from '../../plugins/stores/collection.js'
import { dialect } from '../../plugins/stores/postgres/pool.js'
import { creationOf, indexesOf, sharedTables, tableFor } from '../../plugins/stores/sql/tables.js'

/**
 * The content of deploy/postgresql.sql: what the service creates when it starts, and a role that can only read and
 * write rows.
 */
export function postgresqlSql () {
  const tables = definitions.map(definition =>
    tableFor(collectionOf(checkDefinition({ ...definition, idSource: 'client' } as Definition))))
  const text = (value: unknown) => `'${String(value).replaceAll("'", "''")}'`
  const ofCollections = tables.flatMap(table => {
    const { name, collection, columns, digest, shape } = table
    const { rows, counter: { position, lastId } } = seedOf(collection)
    return [
      creationOf(table, dialect),
      ...Array.from(indexesOf(table, columns, dialect).values(), ({ create }) => create),
      ...rows.map(({ position, id, json }) =>
        `insert into ${table.table} (position, id, record) values (${position}, ${id}, ${text(json)})`),
      'insert into collections (name, position, last_id, digest) ' +
      `values (${text(name)}, ${position}, ${lastId}, ${text(digest)})`,
      'insert into collection_schemas (name, digest, schema, at) ' +
      `values (${text(name)}, ${text(digest)}, ${text(JSON.stringify(shape))}, 1)`
    ]
  })
  const names = tables.map(({ table }) => table)
  return `-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
begin;
${[...sharedTables, ...ofCollections].join(';\n')};
create role items_users;
grant select on collection_schemas to items_users;
grant select, update on collections to items_users;
grant select, insert, update, delete on idempotency_keys, ${names.join(', ')} to items_users;
commit;
`
}
