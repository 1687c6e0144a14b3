import { execFileSync, spawnSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import type { Test } from 'tap'
import { newFolder } from './folder.js'

/** Why a test that needs a small disk is skipped, if it is. */
export const noSmallDisk = spawnSync('unshare',
  ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', tmpdir()]).status !== 0 && 'no file system can be mounted'

/** A folder on a disk of its own. `fill` uses up the space, and `free` makes it available again. */
export function smallDisk (scope: Pick<Test, 'teardown'>, megabytes: number) {
  const folder = newFolder(scope)
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder], { stdio: 'pipe' })
  scope.teardown(() => execFileSync('umount', ['--lazy', folder]))
  const ballast = `${folder}/ballast`

  return {
    folder,
    free: () => rmSync(ballast),
    fill () {
      try {
        writeFileSync(ballast, Buffer.alloc(megabytes * 1024 * 1024))
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
      }
    }
  }
}
