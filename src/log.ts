import { LogController, type FastifyReply, type FastifyRequest } from 'fastify'
import pino from 'pino'

/** Writes one line a request, when it has been answered. Its fields are flat, which is half the work for pino. */
export class OneLineARequest extends LogController {
  override incomingRequest () {}

  override requestCompleted (error: Error | null | undefined, request: FastifyRequest, reply: FastifyReply) {
    const { method, url, ip } = request
    const line = { method, url, status: reply.statusCode, ms: reply.elapsedTime, ip }
    if (error) reply.log.error({ ...line, err: error }, 'request failed')
    else reply.log.info(line, 'request completed')
  }
}

/**
 * Where the log goes: to a terminal as text for a person, else to standard output as it is, many lines at a time,
 * since to write each on its own takes as long as to answer a request.
 */
export function logStream (terminal = process.stdout.isTTY) {
  if (terminal) return { write: (line: string) => { process.stdout.write(readable(line)) }, flushSync () {} }
  return pino.destination({ sync: false, minLength: 8 * 1024, periodicFlush: 100 })
}

/** Turns a line of the log into text: one line, and those of a stack behind it, which are set in. */
export function readable (line: string) {
  const { time, level, msg, method, url, status, ms, err } = JSON.parse(line)
  const clock = new Date(time).toLocaleTimeString('en-GB')
  const what = ms === undefined ? msg : `${method} ${url} ${status} in ${ms.toFixed(1)} ms`
  const severity = level >= 50 ? ' ERROR' : level >= 40 ? ' WARNING' : ''
  const stack = err ? `${String(err.stack).split('\n').map(visible).join('\n    ')}\n` : ''
  return `${clock}${severity} ${visible(String(what))}\n${stack}`
}

/** Writes out what would end a line or speak to a terminal: a message may repeat what a client has sent. */
function visible (text: string) {
  return text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
