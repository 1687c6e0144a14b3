import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { FastifyInstance } from 'fastify'
import type { Test } from 'tap'

/** Builds one of the hosts in test/package/hosts, in the folder in which the package is installed. */
export async function buildHost (t: Test, folder: string, name: string, options = {}): Promise<FastifyInstance> {
  const { build } = await import(pathToFileURL(join(folder, name)).href)
  // Fastify is a promise too, which to await is to make it ready.
  const app = await build(options)
  t.teardown(() => app.close())
  return app
}

/** Checks that a host has one copy of Fastify, and can use all plugins. */
export async function usesEverything (t: Test, folder: string) {
  const { packages } = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8'))
  const copies = Object.keys(packages).filter(name => /(^|\/)node_modules\/fastify$/.test(name))
  t.same(copies, ['node_modules/fastify'])
  const app = await buildHost(t, folder, 'everything.js')
  const headers = { authorization: 'Bearer one' }
  const item = { id: 7, name: 'Kettle', price: 19.99 }
  t.same((await app.inject({ method: 'POST', url: '/api/items', payload: item, headers })).json(), item)
  t.equal((await app.inject({ url: '/api/items/9', headers })).body, '{"detail":"Not found"}')
  t.equal((await app.inject('/api/items')).statusCode, 401)
  t.equal((await app.inject({ url: '/api/nope', headers })).body, '{"detail":"Path not found"}')
  t.equal((await app.inject({ method: 'PUT', url: '/api/items', headers })).headers.allow, 'GET, HEAD, POST, OPTIONS')
  for (const url of ['/readyz', '/docs', '/redoc', '/redoc/redoc.standalone.js', '/openapi.json']) {
    t.equal((await app.inject(url)).statusCode, 200, url)
  }
}
