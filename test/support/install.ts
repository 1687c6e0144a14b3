import { execFile } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { promisify } from 'node:util'
import { uncovered } from './environment.js'
import { onceInRun } from './run.js'

const run = promisify(execFile)

/**
 * Installs the packages that only one test needs, in the folder below `test/` that has their lockfile. If that fails,
 * it returns the reason, for the test to be skipped with; with `CI=true`, it throws.
 */
export async function install (folder: string) {
  if (isInstalled(folder)) return
  try {
    await onceInRun(`install-${folder.replaceAll('/', '-')}`, async () => {
      await run('npm', ['ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'],
        { cwd: folder, env: uncovered })
      return true
    })
  } catch (error) {
    if (process.env.CI === 'true') throw error
    return `its packages cannot be installed: ${(error as Error).message}`
  }
}

/** npm writes this lockfile at the end of an installation. */
function isInstalled (folder: string) {
  const written = `${folder}/node_modules/.package-lock.json`
  return existsSync(written) && statSync(written).mtimeMs >= statSync(`${folder}/package-lock.json`).mtimeMs
}
