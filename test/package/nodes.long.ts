import { execFile } from 'node:child_process'
import { arch, platform } from 'node:os'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { test } from 'tap'
import { uncovered } from '../support/environment.js'
import { newFolder } from '../support/folder.js'

const run = promisify(execFile)

/** The package that `node` installs on this machine with an install script. */
const binary = `node-${platform()}-${arch()}`

for (const version of ['20', '22', '24', '26']) {
  test(`the tests pass on Node.js ${version}`, { timeout: 1_800_000 }, async t => {
    const folder = newFolder(t)
    const install = ['install', '--silent', '--no-save', '--prefix', folder, `${binary}@${version}`]
    await run('npm', install, { env: uncovered })
    const path = join(folder, 'node_modules', binary, 'bin') + delimiter + process.env.PATH
    const withoutTap = Object.entries(uncovered).filter(([name]) => !/^_?TAP/.test(name))
    const env = { ...Object.fromEntries(withoutTap), PATH: path }
    const options = { env, maxBuffer: 2 ** 26 }
    const failure = await run('npx', ['tap', '--disable-coverage'], options).then(() => '', ({ stdout }) => stdout)
    t.equal(failure, '')
  })
}
