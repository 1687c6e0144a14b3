import { existsSync, rmSync, statSync } from 'node:fs'
import { mkdir, open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { isBusy, type Connect, type Connection } from './sqlite-driver.js'
import { StartupError } from '../startup.js'

/** The path of the file, or an error if it is not clear which file is meant. */
export function pathOf (name: string) {
  if (name === ':memory:') throw new StartupError('DATABASE_URL sqlite::memory: is not supported. Use DATABASE_URL=memory.')
  if (name.startsWith('//')) {
    const file = name.replace(/^\/+/, '')
    throw new StartupError(`DATABASE_URL sqlite:${name} is ambiguous. Use sqlite:${file} for a relative path, or sqlite:/${file} for an absolute path.`)
  }
  return resolve(name) // libsql would interpret some relative names as something other than a file
}

/** Creates the file if it is missing. This fails with a clearer message than SQLite does. */
export async function createFile (path: string) {
  await makeFolder(dirname(path))
  await (await open(path, 'a')).close()
}

/** Creates a folder and its parents. (Node's recursive mkdir does not return in /proc.) */
async function makeFolder (folder: string): Promise<void> {
  if (existsSync(folder)) return
  await makeFolder(dirname(folder))
  await mkdir(folder)
}

/** The files that this process uses, and how often. */
const uses = new Map<string, { count: number, lock: Connection }>()

/**
 * Locks the file and returns a function that releases it. Several processes can corrupt a file in WAL mode until SQLite
 * 3.51.3, so an older SQLite needs the file alone. The lock is an open transaction of another file, so that it ends with the process.
 */
export function lockFile (path: string, connect: Connect) {
  const file = `${path}-lock`
  const use = uses.get(path) ?? { count: 0, lock: connect(file, 0) }
  try {
    /* c8 ignore next -- each version of Node has one SQLite */
    if (use.count === 0) use.lock.exec(canShare(use.lock) ? 'begin; select * from sqlite_schema' : 'begin exclusive')
  } catch (error) {
    use.lock.close()
    throw isBusy(error)
      ? new StartupError(`The SQLite file ${path} in DATABASE_URL is used by another process. Stop it, or use PostgreSQL for several instances.`)
      : error
  }
  use.count++
  uses.set(path, use)
  return function release () {
    if (--use.count > 0) return
    uses.delete(path)
    removeLock(file, use.lock)
    use.lock.close()
  }
}

/** Whether several processes can use one file. */
export function canShare (connection: Connection) {
  const [version] = connection.prepare('select sqlite_version()').get() as [string]
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  return major * 1e6 + minor * 1e3 + patch >= 3_051_003
}

/** Removes the file of the lock. It is locked meanwhile, so that nobody locks a removed file. */
function removeLock (file: string, lock: Connection) {
  try {
    lock.exec('rollback; begin exclusive')
    rmSync(file, { force: true })
  } catch {
    // Another process holds the lock too, or the folder is gone.
  }
}

/** Identifies a file, also if another file replaces it under the same name. */
export function inodeOf (path: string) {
  return statSync(path, { throwIfNoEntry: false })?.ino
}
