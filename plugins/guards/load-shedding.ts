import { Type, type Static } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { httpError } from '../http/errors.js'
import { checkOptions, metadata } from '../plugin.js'

const LoadSheddingOptions = Type.Object({
  /** Event loop delay above which requests are answered with 503, in milliseconds. */
  maxEventLoopDelay: Type.Number({ minimum: 1 })
})
export interface LoadSheddingOptions extends Static<typeof LoadSheddingOptions> {}

/** Answers 503 at once on all routes of its scope while the event loop is delayed. */
export default fp<LoadSheddingOptions>(async function loadShedding (app, options) {
  const { maxEventLoopDelay } = checkOptions(app, 'loadShedding', LoadSheddingOptions, options)
  await app.register(import('@fastify/under-pressure'), {
    maxEventLoopDelay,
    // A sample without a turn of the event loop counts as an infinite delay, so a sample must not be shorter than the limit.
    sampleInterval: Math.max(250, maxEventLoopDelay),
    async pressureHandler () {
      throw httpError(503, 'The service is overloaded')
    }
  })
}, metadata('load-shedding'))
