#!/usr/bin/env node
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import type { Health } from '../plugins/operations/health.js'
import { StartupError } from '../plugins/common/startup.js'
import type { Config } from '../schemas/config.js'

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** The plugins name their options in messages. An operator knows the variables. */
const variables: Record<string, string> = {
  store: 'DATABASE_URL',
  seed: 'SEED_FILE',
  tokens: 'AUTH_TOKENS',
  file: 'AUTH_TOKENS_FILE',
  publicScopes: 'PUBLIC_SCOPES',
  redis: 'REDIS_URL'
}

try {
  await start()
} catch (error) {
  const { code, message } = error as NodeJS.ErrnoException
  if (code === 'ERR_MODULE_NOT_FOUND') console.error(`${message}. Install the dependencies with: npm ci`)
  else if (error instanceof StartupError) console.error(withVariables(message))
  else throw error
  process.exitCode = 1
}

function withVariables (message: string) {
  return message.replaceAll(/the option (\w+)\b/gi, (text, option: string) => variables[option] ?? text)
}

async function start () {
  const { readCommandLine } = await import('./command-line.js')
  const { misspelled, readConfig } = await import('./read-config.js')
  const { text, set } = readCommandLine(process.argv.slice(2))
  if (text !== undefined) return console.log(text)
  const config = readConfig(process.env, set)
  let onSignal: NodeJS.SignalsListener = () => process.exit(0) // during startup, there is nothing to finish
  // Without a listener, the first process of a container ignores a signal.
  for (const name of signals) process.on(name, signal => onSignal(signal))
  // It takes a while to load, which is not necessary for --help and errors in the configuration.
  const { buildApp } = await import('./app.js')
  const log = config.LOG_LEVEL === 'silent' ? undefined : await startLog(config.LOG_LEVEL)
  const app = buildApp(config, log?.options)
  for (const warning of misspelled({ ...process.env, ...set })) app.log.warn(warning)
  const close = await closing(app, config, log)
  await listen(app, config)
  onSignal = closeOnSignal(app, close)
}

type Log = Awaited<ReturnType<typeof startLog>>

/** Returns a function that closes the app. An error that nothing has caught does so, too. */
async function closing (app: FastifyInstance, { SHUTDOWN_DELAY, SHUTDOWN_TIMEOUT }: Config, log?: Log) {
  const { default: closeWithGrace } = await import('close-with-grace')
  let isDraining = false
  // While a body is still arriving, the connection stays open: closing it could destroy the response.
  app.addHook('onRequest', function closeConnection ({ raw }, reply, done) {
    if (isDraining && raw.complete) reply.raw.setHeader('connection', 'close')
    done()
  })

  // Signals are handled elsewhere, so that a second signal exits at once.
  const delay = SHUTDOWN_DELAY + SHUTDOWN_TIMEOUT
  const { close } = closeWithGrace({ delay, skip: [...signals, 'beforeExit'] }, async function closeApp ({ err }) {
    if (err && !log) console.error(err)
    else if (err) app.log.fatal({ err }, 'closing after an error')
    else await drain()
    await app.close()
    await log?.close()
  })
  return close

  /** Fails readiness and disables keep-alive, so that load balancers drain this instance before it closes. */
  async function drain () {
    if (SHUTDOWN_DELAY === 0) return
    app.getDecorator<Health['markNotReady']>('markNotReady')()
    isDraining = true
    await sleep(SHUTDOWN_DELAY)
  }
}

function closeOnSignal (app: FastifyInstance, close: () => void): NodeJS.SignalsListener {
  let since: number | undefined
  return function onSignal (signal) {
    if (since === undefined) {
      since = Date.now()
      app.log.info(`closing on ${signal}`)
      close()
    } else if (Date.now() - since > 500) { // with npm, Ctrl-C sends the signal twice
      app.log.error(`second ${signal}, exiting`)
      process.exit(1)
    }
  }
}

async function listen (app: FastifyInstance, config: Config) {
  const { storageOf } = await import('./read-config.js')
  const { prefixesOf } = await import('./app.js')
  const { HOST: host, PORT: port } = config
  try {
    await app.ready().then(undefined, error => cannotListen('METRICS_PORT', error))
    await app.listen({ host, port, listenTextResolver: welcome }).catch(error => cannotListen('PORT', error))
  } catch (error) {
    await app.close() // otherwise what has started already, such as the metrics server, would keep the process running
    throw error
  }

  function welcome (at: string) {
    const api = prefixesOf(config).map(prefix => at + prefix).join(' and ')
    const pages = config.DOCS ? `, documentation at ${at}/docs and ${at}/redoc` : ''
    const collections = app.getDecorator<string[]>('collections').join(', ') || 'none'
    return `API at ${api}${pages}. Collections: ${collections}. Storage: ${storageOf(config)}`
  }

  function cannotListen (variable: 'PORT' | 'METRICS_PORT', error: NodeJS.ErrnoException) {
    if (error.syscall !== 'listen' && error.syscall !== 'getaddrinfo') throw error
    const [address, setting] = variable === 'PORT' ? [host, 'PORT or --port'] : [config.METRICS_HOST, variable]
    const reason = error.code === 'EADDRINUSE' ? `the port is in use. Set ${setting} to another port` : error.message
    throw new StartupError(`Cannot listen on ${address}:${config[variable]}: ${reason}.`)
  }
}

/** Loads the logger, which a service without a log does not need. */
async function startLog (level: string) {
  const { loggerOptions, openLog } = await import('./logger.js')
  const { stream, close } = await openLog()
  return { close, options: loggerOptions(level, stream) }
}
