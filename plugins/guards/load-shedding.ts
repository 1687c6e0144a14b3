import fp from 'fastify-plugin'
import { Overload } from '../http/errors.js'

export interface LoadSheddingOptions {
  /** How late the event loop may be, in milliseconds. */
  maxEventLoopDelay: number
}

/** Answers 503 at once, on all routes of its scope, while there is more to do than can be done. */
export default fp<LoadSheddingOptions>(async function loadShedding (app, { maxEventLoopDelay }) {
  await app.register(import('@fastify/under-pressure'), {
    maxEventLoopDelay,
    sampleInterval: 250, // a second, its default, is long for those who wait
    customError: Overload
  })
}, { fastify: '5.x', name: 'fastify-items-users/load-shedding' })
