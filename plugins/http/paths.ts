import type { FastifyRequest } from 'fastify'

/**
 * The path of the request as the client sent it, without a trailing slash. (The request target can be an absolute URL,
 * and a link that starts with two slashes or backslashes would lead to another host.)
 */
export function pathOf ({ originalUrl }: FastifyRequest) {
  const url = originalUrl.replace(/^\w+:\/\/[^/]*/, '').replace(/^[/\\]+/, '/')
  return url.slice(0, url.search(/\/?([?#;]|$)/))
}

/** The query of the request. */
export function queryOf ({ originalUrl }: FastifyRequest) {
  return new URLSearchParams(/\?([^#]*)/.exec(originalUrl)?.[1])
}
