import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

const instance = randomUUID()
let requests = 0

/**
 * The id of a request: the client's `X-Request-Id` if it consists of at most 128 visible ASCII characters, otherwise an id of
 * this process and a number. (A UUID for each request would cost 3 % of the requests per second.)
 */
export function genReqId ({ headers }: Pick<IncomingMessage, 'headers'>) {
  const id = headers['x-request-id']
  return id !== undefined && /^[!-~]{1,128}$/.test(String(id)) ? String(id) : `${instance}-${++requests}`
}
