import { LogController, type FastifyBaseLogger, type FastifyReply, type FastifyRequest } from 'fastify'
import pino from 'pino'

export interface LogStream {
  write (line: string): void
}

export type Logging = ReturnType<typeof logging>

/** Options for `Fastify()` that have it log from this level on, one line a request. */
export function logging (level: string, stream: LogStream) {
  const log = pino({ level, base: null }, stream)
  const loggerInstance: FastifyBaseLogger = log
  // One for each request would have nothing to add, and cost as much as its line. Some routes want one that says less.
  const quieter = log.child.bind(log)
  loggerInstance.child = (_bindings, { level } = {}) => level && log.isLevelEnabled(level) ? quieter({}, { level }) : loggerInstance
  return { loggerInstance, logController: new RequestLogController(stream) }
}

/** Writes a line for each request that has been answered: as pino would, but quicker, since the fields are known. */
export class RequestLogController extends LogController {
  readonly #stream

  constructor (stream: LogStream) {
    super()
    this.#stream = stream
  }

  override incomingRequest () {}

  override requestCompleted (error: Error | null | undefined, request: FastifyRequest, reply: FastifyReply) {
    const { method, url, ip } = request
    const status = reply.statusCode
    const ms = Math.round(reply.elapsedTime * 1000) / 1000 // to write out all digits takes longer than the rest of the line
    const log = reply.log as pino.Logger
    if (error) log.error({ method, url, status, ms, ip, err: error }, 'request failed')
    else if (log.isLevelEnabled('info')) this.#stream.write(lineOf(method, url, status, ms, ip))
  }
}

/** The line of a request. A URL may hold anything that is no blank, and an address whatever a trusted proxy says. */
function lineOf (method: string, url: string, status: number, ms: number, ip: string) {
  return `{"level":30,"time":${Date.now()},"method":"${method}","url":${JSON.stringify(url)},"status":${status},` +
    `"ms":${ms},"ip":${JSON.stringify(ip)},"msg":"request completed"}\n`
}

/**
 * Where the log goes: to a terminal as text for a person, else to standard output as it is, many lines at a time,
 * since to write each on its own takes as long as to answer a request.
 */
export function logStream (terminal = process.stdout.isTTY) {
  if (terminal) return { write: (line: string) => { process.stdout.write(readable(line)) }, flushSync () {} }
  // In bytes, since with each line of text it would count anew how long all that are waiting are.
  const output = pino.destination({ sync: false, minLength: 8 * 1024, periodicFlush: 100, contentMode: 'buffer' })
  return {
    // @ts-expect-error: its types know of text alone.
    write: (line: string) => { output.write(Buffer.from(line)) },
    flushSync: () => output.flushSync()
  }
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
