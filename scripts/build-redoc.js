// Copies the bundle of Redoc and our page to a folder: node scripts/build-redoc.js dist. npm downloads the package but does not
// install it, because the bundle does not need its 115 dependencies.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { copyFile, cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'

const version = '2.5.4'
const integrity = 'sha512-M6jWhG1qoBnH6TFmzJnstyCZ87HmOY/UzDm78mHiYihEdlV/YcS9ogOo1NlElnJMeLsyxHFe2yFc4sNjHTrABQ=='
const cache = new URL(`../node_modules/.cache/redoc-${version}/`, import.meta.url)
const from = new URL('package/', cache)
const to = new URL('redoc/', pathToFileURL(`${process.argv[2]}/`))

// Redoc loads only this logo from another host.
const logo = 'https://cdn.redoc.ly/redoc/logo-mini.svg'
const noLogo = 'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E'

if (!existsSync(new URL('complete', cache))) fetchPackage()
const bundle = await readFile(new URL('bundles/redoc.standalone.js', from), 'utf8')
if (!bundle.includes(logo)) throw new Error(`Redoc no longer loads ${logo}: see what it loads instead`)

await mkdir(to, { recursive: true })
await writeFile(new URL('redoc.standalone.js', to), bundle.replace(logo, noLogo))
await copyFile(new URL('bundles/redoc.standalone.js.LICENSE.txt', from), new URL('redoc.standalone.js.LICENSE.txt', to))
await copyFile(new URL('LICENSE', from), new URL('LICENSE', to))
await cp(new URL('../plugins/docs/redoc/', import.meta.url), to, { recursive: true })

function fetchPackage () {
  mkdirSync(cache, { recursive: true })
  const run = (command, ...args) => execFileSync(command, args, { cwd: fileURLToPath(cache), stdio: ['ignore', 'ignore', 'inherit'] })
  // Otherwise, npm pack --pack-destination would apply to this one too.
  run('npm', 'pack', '--silent', '--prefer-offline', '--pack-destination=.', `redoc@${version}`)
  const tarball = `redoc-${version}.tgz`
  const digest = createHash('sha512').update(readFileSync(new URL(tarball, cache))).digest('base64')
  if (`sha512-${digest}` !== integrity) throw new Error(`${tarball} is not the one that is expected: its digest is ${digest}`)
  run('tar', '-xzf', tarball, 'package/LICENSE', 'package/bundles/redoc.standalone.js', 'package/bundles/redoc.standalone.js.LICENSE.txt')
  writeFileSync(new URL('complete', cache), '')
}
