import { once } from 'node:events'
import type { Test } from 'tap'
import itemsUsers, { auth, rateLimit } from '../../src/index.js'
import { connection, written, type Answer } from '../support/connection.js'
import { build, host } from '../support/helper.js'

const max = 10
const item = JSON.stringify({ id: 7, name: 'Kettle', price: 19.99 })
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

/** Twenty requests of all kinds, as they are written. */
function mixed (headers: Record<string, string>[]) {
  const kinds = [
    ['GET', '/api/items'], ['POST', '/api/items', item], ['GET', '/api/nope'],
    ['DELETE', '/api/users/9'], ['PUT', '/api/items', item], ['POST', '/api/items', '{']
  ] as const
  return Array.from({ length: 2 * max }, (_, n) => {
    const [method, path, body] = kinds[n % kinds.length] ?? kinds[0]
    return written(method, path, body, headers[n % headers.length])
  })
}

const requests: Record<string, { env?: object, texts: Buffer[] }> = {
  GETs: { texts: Array(2 * max).fill(written('GET', '/api/items')) },
  'requests of all kinds': { texts: mixed([{}]) },
  'requests of all kinds with a valid token': { env: { AUTH_TOKENS: 'one' }, texts: mixed([bearer('one')]) },
  'requests of all kinds with wrong tokens and without a token': {
    env: { AUTH_TOKENS: 'one' }, texts: mixed([bearer('two'), {}, { authorization: 'Basic b25l' }])
  }
}

/** The tests of a store of the counts. `redis` returns the URL of an empty database, or undefined for memory. */
export function countingTests (t: Test, redis: () => string | undefined, arrivals: Arrival[]) {
  for (const [name, { env, texts }] of Object.entries(requests)) {
    t.test(`20 simultaneous ${name}: 10 are served, each with its own X-RateLimit-Remaining`, async t => {
      for (const arrival of arrivals) {
        holdsToLimit(t, await answersTo(arrival), `on ${arrival.connections} connections`)
      }

      async function answersTo ({ instances, connections }: Arrival) {
        const REDIS_URL = redis()
        const urls = []
        for (let n = 0; n < instances; n++) {
          const app = build(t, { RATE_LIMIT_MAX: String(max), ...REDIS_URL && { REDIS_URL }, ...env })
          urls.push(await app.listen({ port: 0, host: '127.0.0.1' }))
        }
        return sendAtOnce(urls, connections, texts)
      }
    })
  }

  t.test('an address over its limit gets the same 429 with any token, and no token is checked', async t => {
    const checked: string[] = []
    const app = guarded(t, redis(), async token => {
      checked.push(token)
      return token === 'right'
    })
    const tokens = ['right', ...Array(max).fill('wrong')]
    const statuses = []
    for (const token of tokens) {
      statuses.push((await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode)
    }
    t.same(statuses, [200, ...Array(max).fill(401)])
    t.same(checked.splice(0), tokens)

    for (const url of ['/api/items', '/api/nope']) {
      for (const headers of [bearer('right'), bearer('wrong'), {}]) {
        const response = await app.inject({ url, headers })
        t.equal(response.statusCode, 429)
        t.same(response.json(), { detail: 'Too many requests' })
        t.match(response.headers, {
          'x-ratelimit-limit': String(max), 'x-ratelimit-remaining': '0', 'retry-after': /^\d+$/
        })
        t.equal(response.headers['www-authenticate'], undefined)
      }
    }
    t.same(checked, [])
    const other = { url: '/api/items', headers: bearer('right'), remoteAddress: '10.0.0.2' }
    t.equal((await app.inject(other)).statusCode, 200, 'other addresses are not affected')
  })

  t.test('a route of a host can have its own limit, which is counted separately', async t => {
    const app = guarded(t, redis(), async token => token === 'right')
    await app.after()
    app.get('/rare', { config: { rateLimit: { max: 1 } } }, async () => 'rare')
    const statuses = []
    for (const url of ['/rare', '/rare', '/api/items']) {
      statuses.push((await app.inject({ url, headers: bearer('right') })).statusCode)
    }
    t.same(statuses, [200, 429, 200])
  })

  t.test('clients with valid tokens behind one address each have their own limit', async t => {
    const REDIS_URL = redis()
    const app = build(t, { RATE_LIMIT_MAX: String(max), AUTH_TOKENS: 'one,two,three', ...REDIS_URL && { REDIS_URL } })
    const url = await app.listen({ port: 0, host: '127.0.0.1' })
    const clients = ['one', 'two', 'three'].map(token => sendAtOnce([url], 20, mixed([bearer(token)])))
    for (const answers of await Promise.all(clients)) holdsToLimit(t, answers, 'each client')
    t.equal((await app.inject('/api/items')).headers['x-ratelimit-remaining'], '9', 'the address is not limited')
  })
}

/** How simultaneous requests are sent. */
export interface Arrival {
  instances: number
  connections: number
}

/** An app whose collections have a limit, and tokens that are checked like this. */
function guarded (t: Test, redis: string | undefined, check: (token: string) => Promise<boolean>) {
  const app = host(t)
  app.register(rateLimit, { max, redis })
  app.register(auth, { check })
  app.register(itemsUsers, { prefix: '/api' })
  return app
}

/** Sends the requests at once, spread over so many open connections to the instances. */
async function sendAtOnce (urls: string[], connections: number, texts: Buffer[]) {
  const open = Array.from({ length: connections }, (_, n) => connection(urls[n % urls.length] ?? ''))
  // A request outside of the limit makes sure that the server has accepted the connection.
  await Promise.all(open.map(({ send }) => send(written('GET', '/livez'))))
  const answers = await Promise.all(texts.map((text, n) => open[n % connections]?.send(text)))
  for (const { socket } of open) {
    socket.destroy()
    if (!socket.closed) await once(socket, 'close') // the service closes a connection after a malformed body
  }
  return answers.filter(answer => answer !== undefined)
}

function holdsToLimit (t: Test, answers: Answer[], message: string) {
  const served = answers.filter(({ status }) => status !== 429)
  const refused = answers.filter(({ status }) => status === 429)
  t.same(remaining(served), [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], message)
  t.same(remaining(refused), Array(max).fill(0), message)
  t.ok(refused.every(({ headers }) => Number(headers['retry-after']) > 0), message)

  function remaining (answers: Answer[]) {
    return answers.map(({ headers }) => Number(headers['x-ratelimit-remaining'])).sort((a, b) => b - a)
  }
}
