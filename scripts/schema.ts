// Writes the SQL that creates the tables in PostgreSQL to deploy/postgresql.sql: npm run schema
// Prints the SQL for the collections in a file: npm run --silent schema -- collections.json
import { writeFile } from 'node:fs/promises'
import { collections } from '../plugins/collections.js'
import { readDefinitions } from '../plugins/collections-file.js'
import { schemaSql } from './schema-sql.js'

const [file] = process.argv.slice(2)
if (file) console.log(await schemaSql(await readDefinitions(file, collections)))
else await writeFile('deploy/postgresql.sql', await schemaSql(collections))
