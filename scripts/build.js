// Builds the service in a temporary folder. If that succeeds, its files replace those in dist/, one by one and each at
// once. So a failed build changes nothing, and a service that is running always finds the files of its pages. With --no-types,
// which takes a fifth of the time, it does not check types and writes no declarations; with --no-check, it only does not check them.
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { digestOfInputs, filesIn, root, stampFile } from './build-stamp.js'

const dist = join(root, 'dist')
const withoutTypes = process.argv.includes('--no-types') ? ['--noCheck', '--declaration', 'false'] : process.argv.includes('--no-check') ? ['--noCheck'] : []
const folder = mkdtempSync(join(tmpdir(), 'items-users-build-'))
try {
  const digest = digestOfInputs()
  if (run('node_modules/typescript-7/lib/tsc.js', '--project', 'tsconfig.build.json', '--outDir', folder, ...withoutTypes) && run('scripts/build-redoc.js', folder)) {
    nameBuild(digest)
    replaceDist(digest)
  } else {
    console.error('The build failed. dist/ is unchanged.')
    process.exitCode = 1
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function run (...args) {
  return spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' }).status === 0
}

/** Adds the digest to the version, so that builds of the same version can be told apart. */
function nameBuild (digest) {
  const file = join(folder, 'plugins/version.js')
  writeFileSync(file, readFileSync(file, 'utf8').replace(/'(.+)'/, `'$1+${digest.slice(0, 8)}'`))
}

function replaceDist (digest) {
  const names = filesIn(folder)
  const part = join(dist, `.part-${process.pid}`)
  rmSync(stampFile, { force: true }) // an interrupted build is not up to date
  for (const name of names) {
    mkdirSync(dirname(join(dist, name)), { recursive: true })
    copyFileSync(join(folder, name), part) // the folder may be on another file system, where files cannot be moved
    renameSync(part, join(dist, name))
  }
  for (const name of filesIn(dist)) if (!names.includes(name) && !name.startsWith('.part-')) rmSync(join(dist, name), { force: true })
  writeFileSync(stampFile, digest)
}
