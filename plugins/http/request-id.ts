import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/** The id of a request: the client's `X-Request-Id` if it consists of at most 128 visible ASCII characters, otherwise a UUID. */
export function genReqId ({ headers }: Pick<IncomingMessage, 'headers'>) {
  const id = String(headers['x-request-id'] ?? '')
  return /^[!-~]{1,128}$/.test(id) ? id : randomUUID()
}
