import { readFileSync, unwatchFile, watchFile } from 'node:fs'
import type { FastifyInstance } from 'fastify'
import { namedToken } from '../../schemas/config.js'
import { readNamed, StartupError } from '../startup.js'

/** Tokens, and the names of those that have one. */
export type Tokens = Map<string, string | undefined>

const validEntry = new RegExp(`^${namedToken.pattern}$`)

export function parseTokens (texts: string[]): Tokens {
  return tokensOf('the option tokens', texts.map((text, n) => ({ place: `entry ${n + 1}`, text })))
}

/** Reads a file with one token per line. A `#` at the start of a line or after a space begins a comment. */
export function readTokens (file: string): Tokens {
  const lines = readNamed('the option file', () => readFileSync(file, 'utf8').split('\n'))
  const entries = lines.map((line, n) => ({ place: `line ${n + 1}`, text: line.replace(/(^|\s)#.*/, '').trim() }))
  return tokensOf('the option file', entries.filter(({ text }) => text !== ''))
}

/** Reads a file again when it changes. If it is invalid, this is logged. */
export function watchTokens (app: FastifyInstance, file: string, accept: (tokens: Tokens) => void) {
  watchFile(file, { interval: 1000, persistent: false }, readAgain)
  app.addHook('onClose', async function stopWatching () {
    unwatchFile(file, readAgain)
  })

  function readAgain () {
    try {
      accept(readTokens(file))
      app.log.info(`Tokens reloaded from ${file}`)
    } catch (error) {
      app.log.error({ err: error }, `Tokens cannot be reloaded from ${file}; the previous tokens stay valid`)
    }
  }
}

/** A message contains the place of an invalid entry, but never its text, because it may be a secret. */
function tokensOf (source: string, entries: { place: string, text: string }[]): Tokens {
  const invalid = entries.filter(({ text }) => !validEntry.test(text))
  if (invalid.length > 0) throw new StartupError([`Invalid tokens in ${source}:`, ...invalid.map(({ place }) => `  ${place} must be ${namedToken.expected}`)].join('\n'))
  return new Map(entries.map(({ text }) => {
    const [token = '', name] = text.split(':').reverse()
    return [token, name]
  }))
}
