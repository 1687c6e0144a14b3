import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { test } from 'tap'
import { uncovered } from '../support/environment.js'
import { install } from '../support/install.js'

const run = promisify(execFile)
const tools = 'test/docs/tools'
const skip = await install(tools)
const pages = ['*.md', 'docs/*.md']

test('the documentation is valid Markdown', { skip }, async t => {
  t.equal(await problems('markdownlint-cli2', ...pages), '')
})

test('the documentation and the comments have no spelling mistakes', { skip }, async t => {
  t.equal(await problems('cspell', '--no-progress', '--no-summary', '--config', `${tools}/cspell.json`, ...pages,
    '{src,plugins,schemas}/**/*.ts'),
  '')
})

/** Runs a linter and returns what it complains about. */
async function problems (linter: string, ...args: string[]) {
  const { code, stdout, stderr } = await run(`${tools}/node_modules/.bin/${linter}`, args, { env: uncovered })
    .catch(error => error)
  return code ? stdout + stderr : ''
}
