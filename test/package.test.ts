import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { test } from 'tap'
import { build } from './helper.js'

test('the package holds what a user needs and nothing else', async t => {
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'])
  const files: string[] = JSON.parse(stdout)[0].files.map(({ path }: { path: string }) => path)
  const expected = /^(dist\/(src|plugins|schemas)\/.+\.(js|d\.ts)|dist\/redoc\/.+|openapi\.json|package\.json|README\.md|LICENSE)$/
  t.same(files.filter(file => !expected.test(file)), [])
  for (const file of ['dist/src/index.js', 'dist/src/index.d.ts', 'dist/src/server.js', 'dist/redoc/redoc.standalone.js', 'openapi.json']) {
    t.ok(files.includes(file), file)
  }
})

test('the curl lines of the README answer as it says', async t => {
  const readme = await readFile('README.md', 'utf8')
  const app = build(t)
  const lines = readme.matchAll(/^curl http:\/\/127\.0\.0\.1:3000(\S+)(?: -d '(.+)')?\n```\n```json\n(.+)$/gm)
  let count = 0
  for (const [, url, body, answer] of lines) {
    const response = await app.inject({ method: body ? 'POST' : 'GET', url, body })
    t.equal(response.body, answer)
    count++
  }
  t.equal(count, 5)
})

test('the sections of the README that ready it for the internet say what is so', async t => {
  const readme = await readFile('README.md', 'utf8')
  const [, part = ''] = /\n## Ready it for the internet\n(.+?)\n## /s.exec(readme) ?? []
  const sections = part.split('\n### ').slice(1)
  t.equal(sections.length, 9)
  for (const section of sections) {
    const [, settings = ''] = /^(.+) npm start$/m.exec(section) ?? []
    const app = build(t, Object.fromEntries(settings.split(' ').map(setting => setting.split('='))))
    const examples = [...section.matchAll(/^curl -i '?http:\/\/127\.0\.0\.1:3000([^\s']+)'?(?: -H '(.+?): (.+?)')?(?: -d '(.+)')?\n```\n```http\nHTTP\/1\.1 (\d+) (.+)\n((?:.+\n)*)\n(.+)$/gm)]
    t.ok(examples.length > 0 || section.startsWith('Metrics'), section.slice(0, 20))
    for (const [, url, header, value, body, status, phrase, headers = '', answer] of examples) {
      const response = await app.inject({ method: body ? 'POST' : 'GET', url, body, headers: header ? { [header]: value } : {} })
      t.equal(response.statusCode, Number(status))
      t.equal(response.statusMessage, phrase)
      t.equal(response.body, answer)
      for (const line of headers.trim().split('\n').filter(Boolean)) {
        const [name = '', ...rest] = line.split(': ')
        t.equal(String(response.headers[name]), rest.join(': '))
      }
    }
  }
})

test('no file of the package names a host of a registry', async t => {
  t.notMatch(await readFile('package-lock.json', 'utf8'), /"resolved"/)
})
