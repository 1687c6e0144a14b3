import { equal, ok } from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { connection, open, request, written } from '../support/connection.js'
import { newFolder } from '../support/folder.js'
import { hostileCollections, hostileValues } from '../support/hostile.js'
import { serve, type Scope } from './service.js'

/**
 * Sends everything that once cost far more than its size to one service on SQLite with a heap of 128 MB, which must stay.
 * Returns the memory after each kind, at most, and how long a probe waited meanwhile. `share` is the share of the bodies that are sent.
 */
export async function expensive (scope: Scope, { share, connections, posts }: { share: number, connections: number, posts: number }) {
  const file = `${newFolder(scope)}/collections.json`
  writeFileSync(file, JSON.stringify(hostileCollections))
  const { url, process } = await serve(scope, { DATABASE_URL: `sqlite:${newFolder(scope)}/items.db`, COLLECTIONS_FILE: file, DOCS: 'true' }, { flags: ['--max-old-space-size=128'] })
  const item = (id: number, name: string) => written('POST', '/api/items', JSON.stringify({ id, name, price: 1 }))

  const kinds: Record<string, () => Promise<unknown>> = {
    async 'a million chunks' () {
      const socket = open(url)
      socket.write('POST /api/items HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n')
      const chunks = Buffer.from('1\r\n \r\n'.repeat(10_000))
      for (let n = 0; n < 100; n++) if (!socket.write(chunks)) await Promise.race([once(socket, 'drain'), socket.received])
      socket.write('2\r\n{}\r\n0\r\n\r\n')
      ok(String(await socket.received).startsWith('HTTP/1.1 400'))
    },

    async [`${posts} pipelined POSTs`] () {
      const { socket, send } = connection(url)
      for (let sent = 0; sent < posts; sent += 1000) {
        const answers = await Promise.all(Array.from({ length: 1000 }, (_, n) => send(item(sent + n, 'x'.repeat(1000)))))
        ok(answers.every(({ status }) => status === 201))
      }
      socket.destroy()
    },

    async '300 compressed pages' () {
      const accepted = ['gzip', 'br', 'br, identity;q=0']
      const paths = ['/api/items?limit=900', '/openapi.json', '/redoc/redoc.standalone.js', '/docs/']
      const answers = await Promise.all(Array.from({ length: 300 }, (_, n) => {
        const socket = open(url)
        socket.write(request('GET', String(paths[n % paths.length]), '', `Accept-Encoding: ${accepted[n % accepted.length]}`))
        return socket.received
      }))
      for (const answer of answers) ok(/^HTTP\/1\.1 (200|503) /.test(answer.toString('latin1', 0, 20)), answer.toString('latin1', 0, 20))
    },

    '100 lists that nobody reads': () => unread(100, request('GET', '/api/items')),

    async 'large bodies' () {
      for (const [n, name] of Object.keys(hostileCollections).entries()) {
        for (const [place, [kind, valueOf]] of Object.entries(hostileValues).entries()) {
          if (place % share !== n % share) continue
          scope.comment(`${name}, ${kind}`)
          const response = await fetch(`${url}/api/${name}`, { method: 'POST', body: `{"value":${valueOf(1_000_000)}}` })
          ok([201, 400].includes(response.status), `${name}, ${kind}: ${response.status}`)
          await response.arrayBuffer()
        }
      }
    },

    async 'PATCHes that add keys' () {
      const patch = async (path: string, n: number) => (await fetch(url + path, { method: 'PATCH', body: `{"value":{"k${n}":"${'x'.repeat(200_000)}"}}` })).status
      const { headers } = await fetch(`${url}/api/free`, { method: 'POST', body: '{}' })
      const path = `/api/free/${headers.get('location')?.split('/').at(-1)}`
      const statuses = []
      for (let n = 0; n < 10; n++) statuses.push(await patch(path, n))
      equal(String(statuses), '200,200,200,200,200,413,413,413,413,413')
    },

    // The last one, because the service is busy for a while after it.
    [`${connections} connections that pipeline and do not read`]: () => unread(connections, 'GET /redoc/redoc.standalone.js HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(6) + 'GET /livez HTTP/1.1\r\nHost:\r\n\r\n'.repeat(4500))
  }

  const figures: Record<string, { megabytes: number, wait: number }> = {}
  for (const [kind, run] of Object.entries(kinds)) {
    scope.comment(kind)
    figures[kind] = await measured(run())
  }
  return figures

  /** Probes the service until something is done. */
  async function measured (work: Promise<unknown>) {
    let [megabytes, wait] = [0, 0]
    const done = work.then(() => true)
    do {
      const began = performance.now()
      equal((await fetch(`${url}/livez`)).status, 200)
      wait = Math.max(wait, performance.now() - began)
      megabytes = Math.max(megabytes, Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.pid}/status`, 'utf8'))?.[1]) / 1024)
    } while (!await Promise.race([done, sleep(10, false)]))
    return { megabytes, wait }
  }

  /** Sends the same on many connections and reads nothing for a while. */
  async function unread (count: number, text: string) {
    const clients = Array.from({ length: count }, () => open(url).pause())
    await Promise.all(clients.map(client => once(client, 'connect')))
    for (const client of clients) client.write(text)
    await sleep(3000)
    for (const client of clients) client.destroy()
    equal((await fetch(`${url}/livez`)).status, 200)
  }
}
