// Copies Redoc's bundle to where the built package serves it from, so that production does not carry the package.
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises'

const from = new URL('../node_modules/redoc/', import.meta.url)
const to = new URL('../dist/redoc/', import.meta.url)

// The one thing that Redoc loads from another host: its makers' logo.
const logo = 'https://cdn.redoc.ly/redoc/logo-mini.svg'
const noLogo = 'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E'

const bundle = await readFile(new URL('bundles/redoc.standalone.js', from), 'utf8')
if (!bundle.includes(logo)) throw new Error(`Redoc no longer loads ${logo}: see what it loads instead`)

await mkdir(to, { recursive: true })
await writeFile(new URL('redoc.standalone.js', to), bundle.replace(logo, noLogo))
await copyFile(new URL('bundles/redoc.standalone.js.LICENSE.txt', from), new URL('redoc.standalone.js.LICENSE.txt', to))
await copyFile(new URL('LICENSE', from), new URL('LICENSE', to))
