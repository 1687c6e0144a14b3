// Writes the document of the service as it is by default to openapi.json.
import { writeFile } from 'node:fs/promises'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/read-config.js'

const app = buildApp(readConfig({ LOG_LEVEL: 'silent' }))
const response = await app.inject({ url: '/openapi.json', headers: { host: '127.0.0.1:3000' } })
await app.close()
await writeFile('openapi.json', `${JSON.stringify(response.json(), null, 2)}\n`)
