#!/usr/bin/env node
import closeWithGrace from 'close-with-grace'
import { buildApp } from './app.js'
import { ConfigError, readConfig } from './config.js'
import { readable } from './log.js'

/** Why a server could not listen, in the words of someone who set its address. */
const reasons: Record<string, string> = {
  EADDRINUSE: 'the port is taken; set PORT to another one',
  EACCES: 'this user may not use the port; set PORT to another one',
  EADDRNOTAVAIL: 'this machine does not have the address; set HOST to another one',
  ENOTFOUND: 'the name is not known; set HOST to another one'
}

try {
  await start()
} catch (error) {
  if (!(error instanceof ConfigError)) throw error
  console.error(error.message)
  process.exitCode = 1
}

async function start () {
  const config = readConfig()
  const { HOST: host, PORT: port, API_PREFIX: api } = config
  const app = buildApp(config, process.stdout.isTTY ? { write: line => process.stdout.write(readable(line)) } : undefined)

  await app.ready()
  await app.listen({
    host,
    port,
    listenTextResolver: at => `API at ${at}${api}` + (config.DOCS ? `, documentation at ${at}/docs and ${at}/redoc` : '')
  }).catch(({ code, message }) => {
    throw new ConfigError(`Cannot listen on ${host}:${port}: ${reasons[code] ?? message}.`)
  })

  closeWithGrace({ logger: { error: message => app.log.error(message) } }, async function close ({ err, signal }) {
    if (err) app.log.fatal({ err }, 'closing after an error')
    else app.log.info(`closing on ${signal}`)
    await app.close()
  })
}
