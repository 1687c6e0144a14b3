import fp from 'fastify-plugin'

/**
 * Tells clients to leave once the app closes. Fastify does so for the requests that come after; those already
 * under way would keep their connections, and the app, open.
 */
export default fp(async function drain (app) {
  let closing = false

  app.addHook('preClose', async function startToDrain () {
    closing = true
  })

  app.addHook('onSend', function endConnection (_request, reply, payload, done) {
    if (closing) reply.header('connection', 'close')
    done(null, payload)
  })
}, { fastify: '5.x', name: 'drain' })
