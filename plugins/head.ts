import { Readable } from 'node:stream'
import type { FastifyRequest } from 'fastify'

/** Hands on a body, or for a HEAD only what it is: a stream would be read to its end for nobody. */
export function bodyFor<T> ({ method }: FastifyRequest, body: T | Promise<T>): T | Promise<T> {
  return method === 'HEAD' ? Promise.resolve(body).then(unread) : body
}

function unread<T> (body: T) {
  if (body instanceof Readable) body.destroy()
  return body
}
