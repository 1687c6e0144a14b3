import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test, type Test } from 'tap'
import { Config } from '../../schemas/config.js'
import { readConfig } from '../../src/read-config.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { examplesIn, pages } from '../support/markdown.js'
import { freePort } from '../support/postgres.js'

const curl =
  /^curl (?:-[is] )?'?http:\/\/127\.0\.0\.1:(\d+)([^\s']*)'?(?: -H '(.+?): (.+?)')?(?: -d '(.+)')?(?: \| grep (\w+))?$/
const start = /^(?:(.+) )?npm start$/

// first-application.md is one story, with a test of its own.
for (const page of pages.filter(page => page !== 'docs/first-application.md')) {
  test(`the examples in ${page} have the responses that it shows`, async t => {
    const metricsPort = await freePort()
    const examples = examplesIn(page)
    let section = ''
    let settings = {}
    let app: ReturnType<typeof build> | undefined
    for (const [n, { section: heading, language, code }] of examples.entries()) {
      if (heading !== section) [section, settings, app] = [heading, {}, undefined]
      if (language !== 'sh') continue
      const expected = examples[n + 1]
      const [, variables] = start.exec(code) ?? []
      if (code.includes('--collections')) {
        settings = {
          COLLECTIONS_FILE: fileWith(t, examples.slice(0, n).findLast(({ language }) => language === 'json')?.code)
        }
      }
      if (variables) {
        settings = Object.fromEntries(variables.split(' ').map(variable => variable.split('=')))
        if (expected?.language === 'text') t.throws(() => readConfig(settings), { message: expected.code })
      }
      if (!code.startsWith('curl')) continue
      if (!app) {
        app = build(t, { ...settings, ...'METRICS_PORT' in settings && { METRICS_PORT: String(metricsPort) } })
        await app.ready()
      }
      const [, port, url = '', header, value = '', body, word] = curl.exec(code) ?? []
      t.ok(port, code)
      if (port === '3000') {
        const response = await app.inject({
          method: body ? 'POST' : 'GET',
          url,
          body,
          headers: header ? { [header]: value } : {}
        })
        if (expected?.language === 'http') compare(t, response, expected.code)
        else t.equal(response.body, expected?.code, code)
      } else {
        const text = await (await fetch(`http://127.0.0.1:${metricsPort}${url}`)).text()
        t.equal(text.split('\n').filter(line => line.includes(String(word))).join('\n'), expected?.code, code)
      }
    }
  })
}

test('links between the pages lead to files and headings that exist', async t => {
  for (const page of [...pages, 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md']) {
    for (const [, target = ''] of readFileSync(page, 'utf8').matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path = '', heading] = target.split('#')
      const file = path ? join(dirname(page), path) : page
      t.ok(existsSync(file), `${page}: ${target}`)
      if (heading) t.ok(headingsOf(readFileSync(file, 'utf8')).includes(heading), `${page}: ${target}`)
    }
  }

  /** The anchors of headings, as GitHub builds them. */
  function headingsOf (text: string) {
    return Array.from(text.matchAll(/^#+ (.+)$/gm), ([, title = '']) =>
      title
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, '')
        .replaceAll(' ', '-')
    )
  }
})

test('docs/configuration.md lists every variable with its default and description', async t => {
  const page = readFileSync('docs/configuration.md', 'utf8')
  for (const [name, { default: value, description }] of Object.entries(Config.properties)) {
    t.match(page, `| \`${name}\` | ${value === undefined ? '–' : `\`${value}\``} | ${description} |`)
  }
  t.equal(page.match(/^\| `[A-Z_]+` \|/gm)?.length, Object.keys(Config.properties).length)
})

function fileWith (t: Test, content = '') {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, content)
  return file
}

/** Compares a response with the HTTP response that a page shows. */
function compare (t: Test, response: Awaited<ReturnType<ReturnType<typeof build>['inject']>>, text: string) {
  const [head = '', body = ''] = text.split('\n\n')
  const [status = '', ...headers] = head.split('\n')
  t.equal(`HTTP/1.1 ${response.statusCode} ${response.statusMessage}`, status)
  t.equal(response.body, body)
  for (const header of headers) {
    const [name = '', ...value] = header.split(': ')
    const actual = String(response.headers[name])
    if (/^(retry-after|x-ratelimit-reset)$/.test(name)) {
      t.ok(Number(actual) <= Number(value) && Number(actual) > 0, `${name}: ${actual}`)
    } else t.equal(actual, value.join(': '), name)
  }
}
