// A host that is CommonJS.
const Fastify = require('fastify')
const { default: itemsUsers, health } = require('fastify-items-users')

exports.build = () => {
  const app = Fastify()
  app.register(health)
  app.register(itemsUsers, { prefix: '/api' })
  return app
}
