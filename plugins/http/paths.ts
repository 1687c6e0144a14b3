import type { FastifyRequest } from 'fastify'

/**
 * The path that a client asked for, as it wrote it, without a slash in the end. (A target may be a whole URL, and two
 * slashes of any kind in the beginning of a link would lead to another host.)
 */
export function pathOf ({ originalUrl }: FastifyRequest) {
  const url = originalUrl.replace(/^\w+:\/\/[^/]*/, '').replace(/^[/\\]+/, '/')
  return url.slice(0, url.search(/\/?([?#;]|$)/))
}

/** The query that a client asked with. */
export function queryOf ({ originalUrl }: FastifyRequest) {
  return new URLSearchParams(/\?([^#]*)/.exec(originalUrl)?.[1])
}
