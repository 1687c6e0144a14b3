// Writes the document of the service as it is by default to openapi.json, and its types to src/client/types.ts.
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { definitions } from '../plugins/definitions.js'
import { schemaName } from '../schemas/fields.js'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import { install } from '../test/support/install.js'

const app = buildApp(readConfig({ LOG_LEVEL: 'silent' }))
const response = await app.inject({ url: '/openapi.json', headers: { host: '127.0.0.1:3000' } })
await app.close()
await writeFile('openapi.json', `${JSON.stringify(response.json(), null, 2)}\n`)

const problem = await install('test/clients/types')
if (problem) throw new Error(`src/client/types.ts was not written: ${problem}`)
const { stdout } = await promisify(execFile)('test/clients/types/node_modules/.bin/openapi-typescript', ['openapi.json'])
await writeFile('src/client/types.ts', `${stdout}
/** The collections of the service: their records, and what clients can do. */
export interface Collections {
${definitions.map(({ name, schema, operations }) => `    ${name}: { record: components["schemas"]["${schemaName(schema.$id)}"], operations: ${operations?.map(operation => `"${operation}"`).join(' | ')} };`).join('\n')}
}
export const names = ${JSON.stringify(definitions.map(({ name }) => name))} as const;
`)
