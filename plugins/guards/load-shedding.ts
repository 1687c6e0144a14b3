import fp from 'fastify-plugin'
import { httpError } from '../http/errors.js'
import { metadata } from '../common/plugin.js'

export interface LoadSheddingOptions {
  /** Event loop delay above which requests are answered with 503, in milliseconds. */
  maxEventLoopDelay: number
}

/** Answers 503 at once on all routes of its scope while the event loop is delayed. */
export default fp<LoadSheddingOptions>(async function loadShedding (app, { maxEventLoopDelay }) {
  await app.register(import('@fastify/under-pressure'), {
    maxEventLoopDelay,
    // A sample without a turn of the event loop counts as an infinite delay, so it must not be shorter than the limit.
    sampleInterval: Math.max(250, maxEventLoopDelay),
    async pressureHandler () {
      throw httpError(503, 'The service is overloaded')
    }
  })
}, metadata('load-shedding'))
