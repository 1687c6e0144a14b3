import fp from 'fastify-plugin'
import { unavailable } from '../http/errors.js'

export interface LoadSheddingOptions {
  /** How late the event loop may be, in milliseconds. */
  maxEventLoopDelay: number
}

/** Answers 503 at once, on all routes of its scope, while there is more to do than can be done. */
export default fp<LoadSheddingOptions>(async function loadShedding (app, { maxEventLoopDelay }) {
  await app.register(import('@fastify/under-pressure'), {
    maxEventLoopDelay,
    // A sample in which the event loop did not run counts as an infinite delay, so it is not shorter than the limit.
    sampleInterval: Math.max(250, maxEventLoopDelay),
    async pressureHandler () {
      throw unavailable('The service is overloaded')
    }
  })
}, { fastify: '5.x', name: 'fastify-items-users/load-shedding' })
