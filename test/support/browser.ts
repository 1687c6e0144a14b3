import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'
import type { Test } from 'tap'
import { install } from './install.js'
import { without } from './programs.js'

/** Upgrades to HTTPS, as Playwright does, and two pages of the address bar, which every window would load. */
const disabled = 'HttpsUpgrades,WebUIOmniboxPopup,WebUIOmniboxAimPopup'

const installed = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

/** Starts a browser: the one at CHROMIUM_PATH, the one of the machine, or the one from npm. */
export async function launch (t: Pick<Test, 'teardown'>, ...args: string[]) {
  const home = await mkdtemp(join(tmpdir(), 'browser-'))
  t.teardown(() => rm(home, { recursive: true, force: true, maxRetries: 5 }))
  const executablePath = process.env.CHROMIUM_PATH ?? installed.find(existsSync) ?? await packaged(home)
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--headless', '--disable-gpu', '--disable-background-networking', '--disable-component-update', `--disable-features=${disabled}`, ...args],
    env: { ...process.env, TMPDIR: home, HOME: home }
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

/** The package unpacks its libraries only on AWS Lambda, or if this variable is set. It exists only for x64. */
async function packaged (home: string) {
  if (process.arch !== 'x64') throw new Error(String(without('chromium')))
  process.env.AWS_LAMBDA_JS_RUNTIME = 'nodejs22.x'
  process.env.TMPDIR = home
  const problem = await install('test/browser')
  if (problem) throw new Error(problem)
  const path = createRequire(resolve('test/browser/package.json')).resolve('@sparticuz/chromium')
  const { default: sparticuz } = await import(pathToFileURL(path).href) as { default: { executablePath (): Promise<string> } }
  const executable = await sparticuz.executablePath()
  // Its own configuration looks for fonts in /tmp/fonts. Without a font, Chromium crashes.
  await writeFile(join(home, 'fonts/fonts.conf'), `<fontconfig><dir>${home}/fonts</dir><cachedir>${home}/fonts-cache</cachedir></fontconfig>`)
  return executable
}
