import type { FastifyRequest } from 'fastify'

/**
 * The URL of a record of the collection, relative to the URL of the request, so that it also works behind a proxy that
 * strips a path prefix. (Without `./`, a segment such as `a:b` or `\\host` would lead elsewhere.)
 */
export function recordUrl (request: FastifyRequest, id: number) {
  const collection = lastSegment(request)
  return collection === '' ? `./${id}` : `./${collection}/${id}`
}

/** The URL of the same path with another query. Clients do not know that a semicolon starts the query. */
export function urlWithQuery (request: FastifyRequest, query: URLSearchParams) {
  return hasSemicolonDelimiter(request) ? `./${lastSegment(request)}?${query}` : `?${query}`
}

function lastSegment (request: FastifyRequest) {
  const { originalUrl } = request
  const path = originalUrl.slice(0, originalUrl.search(hasSemicolonDelimiter(request) ? /[?#;]|$/ : /[?#]|$/))
  return path.slice(path.lastIndexOf('/') + 1)
}

/** The query of the request. */
export function queryOf (request: FastifyRequest) {
  const query = hasSemicolonDelimiter(request) ? /[?;]([^#]*)/ : /\?([^#]*)/
  return new URLSearchParams(query.exec(request.originalUrl)?.[1])
}

/** Returns whether the app reads a semicolon as the start of the query. */
function hasSemicolonDelimiter ({ server: { initialConfig } }: FastifyRequest) {
  const { routerOptions }: { routerOptions?: object } = initialConfig
  /* c8 ignore next -- older versions of Fastify have no `routerOptions`, and newer ones warn if the option is read elsewhere */
  return Object(routerOptions ?? initialConfig).useSemicolonDelimiter === true
}
