// Writes the SQL that creates the tables in PostgreSQL to deploy/postgresql.sql: npm run schema
// Prints the SQL for the collections in a file: npm run --silent schema -- collections.json
// Prints the SQL that changes an existing database, without changing it: npm run --silent schema -- collections.json postgres://…
import { writeFile } from 'node:fs/promises'
import { definitions } from '../plugins/definitions.js'
import { readDefinitions } from '../plugins/collection/file.js'
import { schemaSql } from './schema-sql.js'

const [file, url] = process.argv.slice(2)
if (file) console.log(await schemaSql(readDefinitions(file, definitions), url))
else await writeFile('deploy/postgresql.sql', await schemaSql(definitions))
