import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { uncovered } from './environment.js'

// Shares things between the test files of a run. Each file is a process, and tap is the parent of all.

const run = process.env.TAP ? join(tmpdir(), `items-users-run-${process.ppid}`) : undefined

/** Creates something once per run, in its own folder: the first test file creates it, and the others wait. */
export async function onceInRun<T> (name: string, make: (folder: string) => Promise<T>): Promise<T> {
  if (run === undefined) return make(ownFolder(name))
  if (create(run)) cleanUpAfterwards(run)
  if (create(join(run, name))) {
    const outcome = await make(join(run, name)).then(value => ({ value }), error => ({ error: String(error) }))
    writeFileSync(join(run, `${name}.part`), JSON.stringify(outcome))
    renameSync(join(run, `${name}.part`), join(run, `${name}.json`))
  }
  while (!existsSync(join(run, `${name}.json`))) await sleep(20)
  const { value, error } = JSON.parse(readFileSync(join(run, `${name}.json`), 'utf8'))
  if (error) throw new Error(error)
  return value
}

/** Creates a folder, and returns whether this process is the first one to do so. */
function create (folder: string) {
  try {
    mkdirSync(folder)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return false
  }
}

/**
 * Starts a process that stops the shared PostgreSQL and removes the folder after the run. It ends with SIGKILL: at a
 * normal exit, the hooks of tap create the folder of the project again if it was removed.
 */
function cleanUpAfterwards (run: string) {
  const script = `
    const { readFileSync, rmSync } = require('node:fs')
    const [run, tap] = process.argv.slice(1)
    const isRunning = pid => { try { return process.kill(pid, 0) } catch (error) { return error.code === 'EPERM' } }
    const pidIn = file => { try { return parseInt(readFileSync(file, 'utf8')) } catch {} }
    setInterval(() => {
      if (isRunning(Number(tap))) return
      const postgres = pidIn(run + '/postgres/data/postmaster.pid')
      if (postgres && isRunning(postgres)) return process.kill(postgres, 'SIGQUIT')
      rmSync(run, { recursive: true, force: true })
      process.kill(process.pid, 'SIGKILL')
    }, 250)`
  spawn(process.execPath, ['-e', script, run, String(process.ppid)], {
    detached: true, stdio: 'ignore', env: uncovered
  }).unref()
}

/** Without a run: a folder that is removed when this process exits. */
function ownFolder (name: string) {
  const folder = mkdtempSync(join(tmpdir(), `items-users-${name}-`))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  return folder
}
