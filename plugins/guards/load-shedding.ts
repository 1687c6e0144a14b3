import fp from 'fastify-plugin'
import { unavailable } from '../http/errors.js'

/** Options of the plugin `loadShedding`. */
export interface LoadSheddingOptions {
  /** Event loop delay above which requests are answered with 503, in milliseconds. */
  maxEventLoopDelay: number
}

/** Answers 503 at once on all routes of its scope while the event loop is delayed. */
export default fp<LoadSheddingOptions>(async function loadShedding (app, { maxEventLoopDelay }) {
  await app.register(import('@fastify/under-pressure'), {
    maxEventLoopDelay,
    // A sample without a turn of the event loop counts as an infinite delay, so a sample must not be shorter than the limit.
    sampleInterval: Math.max(250, maxEventLoopDelay),
    async pressureHandler () {
      throw unavailable('The service is overloaded')
    }
  })
}, { fastify: '5.x', name: 'fastify-items-users/load-shedding' })
