import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { test } from 'tap'
import { open } from '../support/connection.js'
import { cpuTime } from '../support/cpu-time.js'
import { newFolder } from '../support/folder.js'
import { build, invalidBody } from '../support/helper.js'
import { quantile } from '../stress/figures.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

test('rejecting a wrong token takes the same time, however similar it is to a valid one', async t => {
  // A guess is compared with a thousand tokens of 8 kB, so that a difference is large enough to be seen. Where the guess
  // is right but for its end, `===` takes 2.4 times as long as where nothing of it is, and a loop 190 times; where its
  // length is right, to compare in constant time only there takes 1.5 to 38 times as long. As it is, the factor is 1.02.
  const size = 8000
  const beginning = 'x'.repeat(size - 4)
  const file = `${newFolder(t)}/tokens`
  writeFileSync(file, Array.from({ length: 1000 }, (_, n) => beginning + String(n).padStart(4, '0')).join('\n'))
  const app = build(t, { AUTH_TOKENS_FILE: file, DOCS: 'false' })
  await app.listen({ port: 0 })
  const connection = open((app.server.address() as AddressInfo).port)
  t.teardown(() => connection.destroy())
  const guesses = {
    'nothing is right': 'y'.repeat(size),
    'half is right': 'x'.repeat(size / 2).padEnd(size, 'y'),
    'all but the end is right': `${beginning}zzzz`,
    'it is too short': beginning,
    'it is too long': `${beginning}0000z`
  }
  t.equal(await statusOf(`${beginning}0999`), 200)
  const times = new Map<string, number[]>(Object.keys(guesses).map(what => [what, []]))
  let ratio = Infinity
  // A difference that is there is there every time; one that others make who are busy on the machine is not.
  for (let tries = 0; tries < 20 && ratio > 1.3; tries++) {
    await measure(30)
    const typical = [...times.values()].map(each => quantile(each, 0.5))
    ratio = Math.max(...typical) / Math.min(...typical)
  }
  t.ok(ratio < 1.3, `${ratio.toFixed(2)} times as long`)

  /** Notes how long each guess takes, in milliseconds, in rounds of all of them. */
  async function measure (rounds: number) {
    const order = Object.entries(guesses)
    for (let round = 0; round < rounds; round++) {
      order.push(...order.splice(0, 1)) // so that none is always the first
      for (const [what, token] of order) {
        const took = cpuTime()
        if (await statusOf(token) !== 401) t.fail(what)
        times.get(what)?.push(took())
      }
    }
  }

  async function statusOf (token: string) {
    connection.write(`HEAD /api/items HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`)
    const [answer] = await once(connection, 'data')
    return Number(String(answer).split(' ', 2)[1])
  }
})

test('the most expensive body of 1 MB takes little time, and compressed bodies are not decompressed', async t => {
  const app = build(t)
  await app.ready()
  const deep = 500_000
  const many = 80_000
  const bodies: Record<string, [string | Buffer, number]> = {
    deep: ['['.repeat(deep) + ']'.repeat(deep), 400],
    'deep, with a forbidden key at the bottom': [`${'{"x":'.repeat(deep / 4)}{"__proto__":1}${'}'.repeat(deep / 4)}`, 400],
    'of many fields': [`{${Array.from({ length: many }, (_, n) => `"k${n}":0`)},${JSON.stringify(item).slice(1)}`, 201],
    'of one field many times': [`{${'"name":"x",'.repeat(many)}${JSON.stringify(item).slice(1)}`, 201],
    'of a long number': [`{"id":${'9'.repeat(1_000_000)},"name":"x","price":1}`, 400],
    'of white space': [' '.repeat(1_000_000), 400]
  }
  // The control, a long name, takes some milliseconds; what took more than linear time would take a thousand times that.
  const control = await least(JSON.stringify({ ...item, name: 'x'.repeat(1_000_000) }), 201)
  for (const [name, [body, status]] of Object.entries(bodies)) {
    const ratio = await least(body, status) / control
    t.ok(ratio < 100, `${name}: ${ratio.toFixed(1)} times as long as the control`)
  }

  /** The least time that a body took. */
  async function least (body: string | Buffer, status: number) {
    const times = []
    for (let n = 0; n < 3; n++) {
      const took = cpuTime()
      t.equal((await app.inject({ method: 'POST', url: '/api/items', body })).statusCode, status)
      times.push(took())
    }
    return Math.min(...times)
  }
  const bomb = gzipSync(Buffer.alloc(100 * 1024 * 1024, ' '))
  for (const encoding of ['gzip', 'deflate', 'br', 'zstd']) {
    const response = await app.inject({ method: 'POST', url: '/api/items', body: bomb, headers: { 'content-encoding': encoding, 'content-type': 'application/json' } })
    t.same(response.json(), invalidBody('body', ['', 'must be UTF-8']))
  }
})
