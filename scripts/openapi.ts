// Writes the document of the service as it is by default to openapi.json.
import { writeFile } from 'node:fs/promises'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'

const app = buildApp(readConfig({ LOG_LEVEL: 'silent' }))
await app.ready()
await writeFile(new URL('../openapi.json', import.meta.url), `${JSON.stringify(app.swagger(), null, 2)}\n`)
await app.close()
