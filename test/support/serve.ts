import type { TObject } from '@sinclair/typebox'
import type { InjectOptions } from 'fastify'
import type { Test } from 'tap'
import { collection, docs, stores, type Definition } from '../../src/index.js'
import { checkAnswers } from './document.js'
import { host } from './helper.js'

/** An app with these collections. Its responses are validated against its document. */
export async function serve (t: Test, store: string | undefined, ...definitions: Definition<TObject>[]) {
  const lines: string[] = []
  const app = host(t, { logger: { stream: { write: line => lines.push(line) } } })
  await app.register(docs)
  if (store) await app.register(stores, { store, databaseTimeout: 60_000 })
  for (const definition of definitions) app.register(collection, { prefix: `/${definition.name}`, ...definition })
  checkAnswers(t, app, JSON.stringify(definitions))
  await app.ready()
  return {
    app,
    lines,
    async send (method: InjectOptions['method'], url: string, body?: unknown, headers?: Record<string, string>) {
      const response = await app.inject({
        method,
        url,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body)
      })
      return {
        status: response.statusCode,
        body: response.body && response.json(),
        etag: String(response.headers.etag),
        headers: response.headers
      }
    }
  }
}
