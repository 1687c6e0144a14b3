// tap runs this before the test files. They start the service from dist/, so it is built if a source has changed.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync, utimesSync } from 'node:fs'
import { join } from 'node:path'

const stamp = 'dist/.tsbuildinfo'
const sources = ['src', 'plugins', 'schemas'].flatMap(folder =>
  readdirSync(folder, { recursive: true }).map(name => join(folder, name)))

if (!existsSync(stamp) || sources.some(isNewer)) {
  // The build is not a test: its coverage is not measured.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(_?TAP|NODE_)/.test(name)))
  execFileSync('npm', ['run', 'build'], { stdio: 'inherit', env })
  utimesSync(stamp, new Date(), new Date())
}

function isNewer (file) {
  return statSync(file).mtimeMs > statSync(stamp).mtimeMs
}
