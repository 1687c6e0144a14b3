#!/usr/bin/env node
import closeWithGrace from 'close-with-grace'
import { CannotOpen } from '../plugins/stores/store.js'
import { buildApp } from './app.js'
import { ConfigError, readConfig } from './config.js'
import { logStream } from './log.js'

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

try {
  await start()
} catch (error) {
  if (!(error instanceof ConfigError || error instanceof CannotOpen)) throw error
  console.error(error.message)
  process.exitCode = 1
}

async function start () {
  const config = readConfig()
  const { HOST: host, PORT: port, API_PREFIX: api } = config
  const log = logStream()
  const app = buildApp(config, log)

  // Eight seconds, since a container is killed after ten. What ends the process by itself has its own exit code.
  const { close } = closeWithGrace({ delay: 8000, skip: [...signals, 'beforeExit'] }, async function closeApp ({ err }) {
    if (err) app.log.fatal({ err }, 'closing after an error')
    await app.close()
    log.flushSync()
  })

  let since: number | undefined
  for (const signal of signals) {
    process.on(signal, function onSignal () {
      if (since === undefined) {
        since = Date.now()
        app.log.info(`closing on ${signal}`)
        close()
      } else if (Date.now() - since > 500) { // one that comes twice at once, as Ctrl-C does through npm, is no second one
        app.log.error(`second ${signal}, exiting`)
        process.exit(1)
      }
    })
  }

  await app.ready()
  await app.listen({
    host,
    port,
    listenTextResolver: at => `API at ${at}${api}` + (config.DOCS ? `, documentation at ${at}/docs and ${at}/redoc` : '')
  }).catch(({ code, message }) => {
    const reason = code === 'EADDRINUSE' ? 'the port is taken; set PORT to another one' : message
    throw new ConfigError(`Cannot listen on ${host}:${port}: ${reason}.`)
  })
}
