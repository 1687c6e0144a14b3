import type { FastifyRequest } from 'fastify'

/**
 * The URL of a record of the collection, relative to the URL of the request, so that it also works behind a proxy that
 * strips a path prefix. (Without `./`, a segment such as `a:b` or `\\host` would lead elsewhere.)
 */
export function recordUrl ({ originalUrl }: FastifyRequest, id: number) {
  const path = originalUrl.slice(0, originalUrl.search(/[?#;]|$/))
  const collection = path.slice(path.lastIndexOf('/') + 1)
  return collection === '' ? `./${id}` : `./${collection}/${id}`
}

/** The query of the request. */
export function queryOf ({ originalUrl }: FastifyRequest) {
  return new URLSearchParams(/\?([^#]*)/.exec(originalUrl)?.[1])
}
