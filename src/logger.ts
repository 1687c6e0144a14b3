import { once } from 'node:events'
import { trace } from '@opentelemetry/api'
import { LogController, type FastifyReply, type FastifyRequest } from 'fastify'
import pino, { type DestinationStream, type LogDescriptor } from 'pino'
import type { PrettyOptions } from 'pino-pretty'

/** Options for `Fastify()`: a pino logger that writes one line per request to this stream. */
export function loggerOptions (level: string, stream: DestinationStream) {
  return {
    logger: { level, stream, mixin: traceIds },
    logController: new RequestLog()
  }
}

export type LoggerOptions = ReturnType<typeof loggerOptions>

/** Logs a request once, after its response. Fastify would also log it when it arrives. */
class RequestLog extends LogController {
  override incomingRequest () {}

  override requestCompleted (error: Error | null | undefined, request: FastifyRequest, reply: FastifyReply) {
    const { log, elapsedTime: responseTime } = reply
    if (error) log.error({ req: request, res: reply, err: error, responseTime }, 'request errored')
    else log.info({ req: request, res: reply, responseTime }, 'request completed')
  }

  /** A response that breaks off is not completed, so this is its line. */
  override streamError (error: NodeJS.ErrnoException, request: FastifyRequest, reply: FastifyReply) {
    const { log, elapsedTime: responseTime } = reply
    if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') return this.requestCompleted(error, request, reply)
    log.info({ req: request, res: reply, responseTime }, 'request aborted')
  }
}

/** The ids of the active OpenTelemetry trace and span, for each line. */
export function traceIds () {
  const span = trace.getActiveSpan()?.spanContext()
  return span ? { trace_id: span.traceId, span_id: span.spanId } : {}
}

/** Options for the log in a terminal: a request is one line of text without its other fields. */
export const prettyOptions: PrettyOptions = {
  sync: true,
  translateTime: 'SYS:HH:MM:ss',
  ignore: 'pid,hostname,reqId,req,res,responseTime,token,reason',
  messageFormat: log => visible(messageOf(log)),
  customPrettifiers: { err: error => Object(error).stack.split('\n').map(visible).join('\n') }
}

/** Opens standard output for the log: colored text in a terminal, otherwise JSON, several lines at a time. */
export async function openLog (terminal = process.stdout.isTTY) {
  const pretty = terminal && await import('pino-pretty').catch(() => undefined)
  if (pretty) return { stream: pretty.default(prettyOptions), async close () {} }
  const stream = pino.destination({ sync: false, minLength: 4096, periodicFlush: 100 })
  return {
    stream,
    /** Writes the remaining lines. (`flushSync` would write them before lines that are already being written.) */
    async close () {
      stream.end()
      await once(stream, 'close').catch(() => {}) // it fails if nobody reads the log any more
    }
  }
}

/** The text of a line, with the name of the bearer token, and why the request was rejected. */
function messageOf ({ req, res, responseTime, token, reason, msg }: LogDescriptor) {
  const isRequest = req && res && responseTime
  const line = isRequest ? `${req.method} ${req.url} ${res.statusCode} in ${responseTime.toFixed(1)} ms` : msg
  return [token, line, reason].filter(Boolean).join(': ')
}

/** Escapes line breaks and control characters, because a message may contain text from a client. */
function visible (text: string) {
  return text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, character => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}
