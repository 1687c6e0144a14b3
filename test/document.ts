import { STATUS_CODES } from 'node:http'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Test } from 'tap'

/** Checks an answer; tells what is wrong with it. */
type Check = (request: FastifyRequest, reply: FastifyReply, payload: unknown) => string | undefined

/** By the settings that a document follows from. */
const checks = new Map<string, Check>()

/** Holds every answer of an app against the document of the app: its status, its content type and its body. */
export function checkAnswers (t: Test, app: FastifyInstance, settings: string) {
  app.addHook('onSend', async function holdAgainstDocument (request, reply, payload) {
    const check = checks.get(settings) ?? checkFor(app.swagger())
    checks.set(settings, check)
    const fault = check(request, reply, payload)
    if (fault) t.fail(`${request.method} ${request.url} ${reply.statusCode}: ${fault}`)
    return payload
  })
}

function checkFor (document: object): Check {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  const { paths } = document as { paths: Record<string, Record<string, { responses: Record<string, { content?: object }> }>> }
  ajv.addSchema({ $id: 'document', ...document })
  const validators = new Map<string, ValidateFunction>()

  return ({ method, routeOptions, is404 }, reply, payload) => {
    const path = String(routeOptions.url).replaceAll(/:(\w+)/g, '{$1}')
    const operation = is404 ? undefined : paths[path]?.[method.toLowerCase()]
    if (operation === undefined || !(reply.statusCode in STATUS_CODES)) return
    const status = [reply.statusCode, `${String(reply.statusCode)[0]}XX`].find(status => status in operation.responses)
    if (status === undefined) return 'the document does not have this status'
    if (operation.responses[status]?.content === undefined) return payload ? 'there should be no body' : undefined
    const type = reply.getHeader('content-type')
    if (type !== 'application/json; charset=utf-8') return `${type} is no JSON`
    if (typeof payload !== 'string' && !Buffer.isBuffer(payload)) return
    const pointer = ['paths', path, method.toLowerCase(), 'responses', String(status), 'content', 'application/json', 'schema']
      .map(part => part.replaceAll('~', '~0').replaceAll('/', '~1')).join('/')
    const validate = validators.get(pointer) ?? ajv.compile({ $ref: `document#/${encodeURI(pointer)}` })
    validators.set(pointer, validate)
    return validate(JSON.parse(String(payload))) ? undefined : ajv.errorsText(validate.errors)
  }
}
