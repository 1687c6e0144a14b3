import type { FastifyRequest } from 'fastify'

/** The path that a client asked for, as it wrote it. */
export function pathOf ({ originalUrl }: FastifyRequest) {
  const query = originalUrl.indexOf('?')
  return query < 0 ? originalUrl : originalUrl.slice(0, query)
}
