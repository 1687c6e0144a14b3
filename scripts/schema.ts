// Writes the SQL that creates the tables in PostgreSQL to deploy/postgresql.sql: npm run schema
import { writeFile } from 'node:fs/promises'
import { collections } from '../plugins/collections.js'
import { schemaSql } from './schema-sql.js'

await writeFile('deploy/postgresql.sql', await schemaSql(collections))
