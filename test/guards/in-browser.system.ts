import { EventEmitter, once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type Test } from 'tap'
import { launchFor } from '../support/browser.js'
import { build } from '../support/helper.js'

test('in a browser, a page of another origin stores nothing, unless CORS_ORIGIN allows it', async t => {
  // Over plain HTTP to these hosts, browsers send Origin and no Sec-Fetch-Site.
  const browser = await launchFor(t)
  if (!browser) return
  const evil = await listen(t, ({ url = '' }, response) => {
    response.setHeader('content-type', 'text/html').end(decodeURIComponent(url.slice(2)))
  })
  const origin = `http://127.0.0.1:${evil}`
  const page = await browser.newPage()
  for (const host of ['service.test', 'localhost', '127.0.0.1']) {
    for (const [CORS_ORIGIN, statuses] of [[undefined, [403, 403, 403]], [origin, [201, 201, 403]]] as const) {
      const app = build(t, { ...CORS_ORIGIN && { CORS_ORIGIN } })
      const service = new EventEmitter()
      app.addHook('onResponse', async (_request, { statusCode }) => { service.emit('response', statusCode) })
      await app.listen({ port: 0, host: '127.0.0.1' })
      const url = `http://${host}:${(app.server.address() as AddressInfo).port}/api/items`
      const answers = []
      for (const html of attacks(url)) {
        const visit = page.goto(`${origin}/?${encodeURIComponent(html)}`)
        const [[status]] = await Promise.all([once(service, 'response'), visit])
        answers.push(status)
      }
      t.same(answers, statuses, host)
      t.equal((await app.inject('/api/items')).json().length, 1 + statuses.filter(status => status === 201).length)
    }
  }
})

/** Pages that post an item in ways that need no preflight. */
function attacks (url: string) {
  const post = `<script>fetch('${url}', {
    method: 'POST', mode: 'no-cors', headers: { 'content-type': 'text/plain' }, body: '{"id":8,"name":"x","price":1}'
  })</script>`
  const form = `<form action="${url}" method="POST" enctype="text/plain" target="sink">
    <input name='{"id":8,"price":1,"name":"' value='"}'></form>`
  return [
    post,
    `<iframe name="sink"></iframe>${form}<script>document.forms[0].submit()</script>`,
    `<iframe sandbox="allow-scripts" srcdoc="${post.replaceAll('"', '&quot;')}"></iframe>` // its origin is null
  ]
}

async function listen (t: Test, listener: RequestListener) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}
