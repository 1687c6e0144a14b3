import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** A folder that is removed when the test ends. */
export function newFolder (t: Pick<Test, 'teardown'>) {
  const folder = mkdtempSync(join(tmpdir(), 'items-users-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  return folder
}
