// Generates a client with each generator in the current folder, from the document at a URL: node generate.js URL
import { writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { createClient } from '@hey-api/openapi-ts'
import { build } from '@kubb/core'
import { pluginClient } from '@kubb/plugin-client'
import { pluginOas } from '@kubb/plugin-oas'
import { pluginTs } from '@kubb/plugin-ts'
import { generateSource } from 'oazapfts'
import { generate as orval8 } from 'orval'
import { generate as orval7 } from 'orval7'
import { generateApi } from 'swagger-typescript-api'

const path = resolve('openapi.json')
await writeFile(path, await (await fetch(process.argv[2])).text())

await createClient({ input: path, output: 'hey', logs: { level: 'silent', file: false } })
await writeFile('oazapfts.ts', await generateSource(path))
await generateApi({ input: path, output: process.cwd(), fileName: 'swagger-typescript-api.ts', silent: true })
for (const [name, generate] of Object.entries({ orval7, orval8 })) {
  for (const client of ['fetch', 'zod']) {
    await generate({
      input: { target: path },
      output: { target: resolve(name, `${client}.ts`), client, baseUrl: { getBaseUrlFromSpecification: true } }
    })
  }
}
const { error } = await build({
  config: {
    root: process.cwd(),
    input: { path },
    output: { path: 'kubb', barrelType: false, format: false, lint: false },
    plugins: [
      pluginOas({ generators: [], validate: false, serverIndex: 0 }),
      pluginTs({ output: { path: 'types.ts', barrelType: false } }),
      pluginClient({ output: { path: 'client.ts', barrelType: false }, client: 'fetch', bundle: true, dataReturnType: 'full' })
    ]
  }
})
if (error) throw error
