import { readFileSync, unwatchFile, watchFile } from 'node:fs'
import type { FastifyInstance } from 'fastify'
import { namedToken, scope } from '../../schemas/config.js'
import { readNamed, StartupError } from '../startup.js'
import { allScopes } from './scopes.js'

/** Tokens with their scopes, and with a name if they have one. */
export type Tokens = Map<string, { name?: string, scopes: readonly string[] }>

/** A token as it is written: `TOKEN` or `NAME:TOKEN`. */
export interface Entry {
  place: string
  text: string
  scopes: readonly string[]
}

const validEntry = new RegExp(`^${namedToken.pattern}$`)
const validScope = new RegExp(`^${scope.pattern}$`)

export function entriesOf (tokens: readonly (string | { token: string, scopes: readonly string[] })[]): Entry[] {
  return tokens.map((entry, n) => {
    const { token, scopes } = typeof entry === 'string' ? { token: entry, scopes: allScopes } : entry
    return { place: `entry ${n + 1} of the option tokens`, text: token, scopes }
  })
}

/** Reads a file with one token per line, and its scopes after spaces. A `#` at the start of a line or after a space begins a comment. */
export function readEntries (file: string, text = textOf(file)): Entry[] {
  return text.split('\n').map((line, n) => {
    const [text = '', ...scopes] = line.replace(/(^|\s)#.*/, '').trim().split(/\s+/)
    return { place: `line ${n + 1} of the option file`, text, scopes: scopes.length > 0 ? scopes : allScopes }
  }).filter(({ text }) => text !== '')
}

function textOf (file: string) {
  return readNamed('the option file', () => readFileSync(file, 'utf8'))
}

/** Reads a file again when it changes. Its invalid lines are logged. */
export function watchTokens (app: FastifyInstance, file: string, accept: (entries: Entry[]) => string[]) {
  const interval = 1000
  let later: NodeJS.Timeout | undefined
  const onChange = () => readAgain()
  watchFile(file, { interval, persistent: false }, onChange)
  app.addHook('onClose', async function stopWatching () {
    clearTimeout(later)
    unwatchFile(file, onChange)
  })

  function readAgain (previous?: string) {
    clearTimeout(later)
    try {
      const text = textOf(file)
      // If a line is half written, it is another token, or one with more scopes. Without a line break at its end, the file must stay as it is.
      if (!text.endsWith('\n') && text !== previous) {
        later = setTimeout(readAgain, interval, text).unref()
        return
      }
      const problems = accept(readEntries(file, text))
      if (problems.length === 0) app.log.info(`Tokens reloaded from ${file}`)
      else app.log.error({ err: invalidTokens(problems) }, `Tokens reloaded from ${file}, without its invalid lines`)
    } catch (error) {
      app.log.error({ err: error }, `Tokens cannot be reloaded from ${file}; the previous tokens stay valid`)
    }
  }
}

export function invalidTokens (problems: string[]) {
  return new StartupError(['Invalid tokens or scopes:', ...problems].join('\n  '))
}

/** Returns the tokens of the valid entries, and the problems of the others, which grant nothing. */
export function tokensOf (entries: Entry[], collections: ReadonlySet<string>) {
  const tokens: Tokens = new Map()
  const problems: string[] = []
  for (const { place, text, scopes } of entries) {
    const [token = '', name] = text.split(':').reverse()
    const problem = problemOf(text, scopes) ?? unknownCollection(scopes, collections)
    if (problem) problems.push(`${place} ${problem}`)
    else tokens.set(token, { name, scopes })
  }
  return { tokens, problems }
}

/**
 * A problem contains nothing of the entry, because it may be a secret. A scope in the place of the token is one whose
 * token is missing.
 */
function problemOf (text: string, scopes: readonly string[]) {
  if (!validEntry.test(text)) return `must be ${namedToken.expected}`
  return validScope.test(text) || !scopes.every(text => validScope.test(text)) ? `must be a token and then its scopes, each ${scope.expected}` : undefined
}

export function unknownCollection (scopes: readonly string[], collections: ReadonlySet<string>) {
  const isKnown = scopes.every(scope => !scope.includes(':') || collections.has(scope.replace(/:.*/, '')))
  return isKnown ? undefined : `has a scope for an unknown collection; the collections are: ${[...collections].join(', ')}`
}
