// Tells whether dist/ was built from the sources as they are now: the build stores a digest of them in dist/.stamp.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))
export const stampFile = join(root, 'dist/.stamp')

const inputs = [
  'package.json', 'tsconfig.json', 'tsconfig.build.json', 'scripts/build.js', 'scripts/build-redoc.js', 'src', 'plugins', 'schemas'
]

/** A digest of the names and contents of all files that the build depends on. */
export function digestOfInputs () {
  const hash = createHash('sha256')
  for (const input of inputs) {
    for (const name of filesIn(join(root, input))) hash.update(JSON.stringify([input, name, readFileSync(join(root, input, name), 'utf8')]))
  }
  return hash.digest('hex')
}

/** The paths of the files in a folder, relative to it; of a file, the empty path. Another build may remove its temporary file meanwhile. */
export function filesIn (path) {
  if (!statSync(path).isDirectory()) return ['']
  return readdirSync(path, { recursive: true }).filter(name => statSync(join(path, name), { throwIfNoEntry: false })?.isFile()).sort()
}

/** Returns whether the build is complete and up to date. */
export function isUpToDate () {
  try {
    return readFileSync(stampFile, 'utf8') === digestOfInputs()
  } catch {
    return false // there is no stamp
  }
}
