// Copies the files of the documentation pages to dist/.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

// npm downloads Redoc but does not install it, because its bundle does not need its 115 dependencies.
const version = '2.5.4'
const integrity = 'sha512-M6jWhG1qoBnH6TFmzJnstyCZ87HmOY/UzDm78mHiYihEdlV/YcS9ogOo1NlElnJMeLsyxHFe2yFc4sNjHTrABQ=='

// Redoc loads only this logo from another host.
const logo = 'https://cdn.redoc.ly/redoc/logo-mini.svg'
const noLogo = 'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E'

process.chdir(fileURLToPath(new URL('..', import.meta.url)))
copyRedoc(unpackRedoc())
cpSync('plugins/docs/theme.css', 'dist/plugins/docs/theme.css')

function copyRedoc (folder) {
  const bundle = readFileSync(`${folder}/bundles/redoc.standalone.js`, 'utf8')
  if (!bundle.includes(logo)) throw new Error(`Redoc no longer loads ${logo}: see what it loads instead`)
  cpSync('plugins/docs/redoc', 'dist/redoc', { recursive: true })
  writeFileSync('dist/redoc/redoc.standalone.js', bundle.replace(logo, noLogo))
  cpSync(`${folder}/bundles/redoc.standalone.js.LICENSE.txt`, 'dist/redoc/redoc.standalone.js.LICENSE.txt')
  cpSync(`${folder}/LICENSE`, 'dist/redoc/LICENSE')
}

/** Downloads Redoc, unless it is in the cache, and returns the folder of its package. */
function unpackRedoc () {
  const cache = 'node_modules/.cache/redoc'
  const tarball = `${cache}/redoc-${version}.tgz`
  mkdirSync(cache, { recursive: true })
  if (digestOf(tarball) !== integrity) {
    execFileSync('npm', ['pack', '--silent', '--prefer-offline', `--pack-destination=${cache}`, `redoc@${version}`])
  }
  if (digestOf(tarball) !== integrity) throw new Error(`${tarball} is not the one that is expected`)
  execFileSync('tar', ['-xzf', tarball, '-C', cache])
  return `${cache}/package`
}

function digestOf (file) {
  try {
    return `sha512-${createHash('sha512').update(readFileSync(file)).digest('base64')}`
  } catch {} // it is not there
}
