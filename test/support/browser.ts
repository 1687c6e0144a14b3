import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'
import type { Test } from 'tap'

const installed = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

/** Starts a browser: the one named by CHROMIUM_PATH, the machine's, or the one that comes from npm. */
export async function launch (t: Test, ...args: string[]) {
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

/** It unpacks its libraries only where it believes to be on the platform it was made for. */
async function packaged (home: string) {
  process.env.AWS_LAMBDA_JS_RUNTIME = 'nodejs22.x'
  process.env.TMPDIR = home
  const { default: sparticuz } = await import('@sparticuz/chromium')
  return sparticuz.executablePath()
}
