import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { test } from 'tap'
import { uncovered } from './support/environment.js'

// It takes 20 s on one core, so it runs beside the tests.
test('ESLint finds no problem', async t => {
  const { stdout } = await promisify(execFile)('npm', ['run', '--silent', 'lint'], { env: uncovered }).catch(error => error)
  t.equal(stdout, '')
})
