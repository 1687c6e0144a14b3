import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'
import type { Test } from 'tap'
import { install } from './install.js'

const installed = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

/** Starts a browser: the one at CHROMIUM_PATH, the one of the machine, or the one from npm. */
export async function launch (t: Pick<Test, 'teardown'>, ...args: string[]) {
  const home = await mkdtemp(join(tmpdir(), 'browser-'))
  t.teardown(() => rm(home, { recursive: true, force: true, maxRetries: 5 }))
  const executablePath = process.env.CHROMIUM_PATH ?? installed.find(existsSync) ?? await packaged(home)
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--headless', '--disable-gpu', '--disable-background-networking', '--disable-component-update', ...args],
    env: { ...process.env, TMPDIR: home, HOME: home }
  })
  t.teardown(() => browser.close())
  return browser
}

/** The package unpacks its libraries only on AWS Lambda, or if this variable is set. */
async function packaged (home: string) {
  process.env.AWS_LAMBDA_JS_RUNTIME = 'nodejs22.x'
  process.env.TMPDIR = home
  const problem = await install('test/browser')
  if (problem) throw new Error(problem)
  const path = createRequire(resolve('test/browser/package.json')).resolve('@sparticuz/chromium')
  const { default: sparticuz } = await import(pathToFileURL(path).href) as { default: { executablePath (): Promise<string> } }
  return sparticuz.executablePath()
}
