import { once } from 'node:events'
import { connect, createServer, type AddressInfo } from 'node:net'
import type { Test } from 'tap'

/** A TCP proxy to a database. When the client sends `cutAt`, the connection is closed; after `silentAt`, it gets no response. Responses are delayed. */
export async function startProxy (t: Test, database: string) {
  const url = new URL(database)
  const port = Number(url.port)
  const proxy = { url: '', cutAt: 'nothing', silentAt: 'nothing', delay: 0 }
  const server = createServer(function forward (client) {
    const upstream = connect(port, '127.0.0.1')
    let isSilent = false
    client.on('data', data => {
      isSilent ||= data.includes(proxy.silentAt)
      if (data.includes(proxy.cutAt)) upstream.destroy()
      else if (!isSilent) upstream.write(data)
    })
    upstream.on('data', data => setTimeout(() => client.write(data), proxy.delay)).on('close', () => client.destroy())
    client.on('close', () => upstream.destroy()).on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  url.port = String((server.address() as AddressInfo).port)
  return Object.assign(proxy, { url: url.href })
}
