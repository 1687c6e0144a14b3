import { LogController, type FastifyReply, type FastifyRequest } from 'fastify'

/** Writes one line a request, when it has been answered. */
export class OneLineARequest extends LogController {
  override incomingRequest () {}

  override requestCompleted (error: Error | null | undefined, request: FastifyRequest, reply: FastifyReply) {
    const line = { req: request, res: reply, responseTime: reply.elapsedTime }
    if (error) reply.log.error({ ...line, err: error }, 'request failed')
    else reply.log.info(line, 'request completed')
  }
}

/** Turns the JSON lines of the log into text for a person at a terminal. */
export function readable (line: string) {
  const { time, level, msg, req, res, responseTime, err } = JSON.parse(line)
  const clock = new Date(time).toLocaleTimeString('en-GB')
  const what = req && res ? `${req.method} ${req.url} ${res.statusCode} in ${responseTime.toFixed(1)} ms` : msg
  const severity = level >= 50 ? ' ERROR' : level >= 40 ? ' WARNING' : ''
  return `${clock}${severity} ${what}\n${err ? `${err.stack}\n` : ''}`
}
