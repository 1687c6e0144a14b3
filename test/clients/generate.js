// Generates a client with each generator in the current folder, from the document at a URL: node generate.js URL
import { writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { createClient } from '@hey-api/openapi-ts'
import { generate } from 'orval'

const path = resolve('openapi.json')
const document = await (await fetch(process.argv[2])).json()
const [server] = document.servers
// It is relative to the document, and a client needs it whole.
server.url = new URL(server.url, process.argv[2]).href.replace(/\/$/, '')
await writeFile(path, JSON.stringify(document))

await createClient({ input: path, output: 'hey', logs: { level: 'silent', file: false } })
for (const client of ['fetch', 'zod']) {
  await generate({
    input: { target: path },
    output: { target: resolve('orval', `${client}.ts`), client, baseUrl: { getBaseUrlFromSpecification: true } }
  })
}
