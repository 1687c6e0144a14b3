import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { namedToken, scope } from '../../schemas/config.js'
import { readNamed, StartupError } from '../common/startup.js'
import type { AuthOptions } from './auth.js'
import { allScopes } from './scopes.js'

/** What a token is called in the log, and what it allows. */
export interface Grant {
  name?: string | undefined
  scopes: readonly string[]
}

/** A token as it is written: `TOKEN` or `NAME:TOKEN`. */
interface Entry {
  place: string
  text: string
  scopes: readonly string[]
}

const validEntry = new RegExp(`^${namedToken.pattern}$`)
const validScope = new RegExp(`^${scope.pattern}$`)

/** The grants by the digest of their token: the time of a look-up tells nothing about a token. Throws all problems. */
export function readGrants ({ tokens = [], file, publicScopes = [] }: AuthOptions, collections: ReadonlySet<string>) {
  const entries = [...entriesOf(tokens), ...file === undefined ? [] : readEntries(file)]
  const problems = entries.flatMap(entry => problemsOf(entry, collections))
  if (!areKnown(publicScopes, collections)) problems.push(`the option publicScopes ${unknownIn(collections)}`)
  if (problems.length > 0) throw new StartupError(['Invalid tokens or scopes:', ...problems].join('\n  '))

  return new Map(entries.map(({ text, scopes }): [string, Grant] => {
    const [token = '', name] = text.split(':').reverse()
    return [digestOf(token), { name, scopes }]
  }))
}

export function digestOf (token: string) {
  return createHash('sha256').update(token).digest('base64url')
}

function entriesOf (tokens: NonNullable<AuthOptions['tokens']>): Entry[] {
  return tokens.map((entry, n) => {
    const { token, scopes } = typeof entry === 'string' ? { token: entry, scopes: allScopes } : entry
    return { place: `entry ${n + 1} of the option tokens`, text: token, scopes }
  })
}

/** Reads a file with one token per line, and its scopes after spaces. A `#` after a space begins a comment. */
export function readEntries (file: string): Entry[] {
  const lines = readNamed('the option file', () => readFileSync(file, 'utf8')).split('\n')
  const entries = lines.map((line, n) => {
    const [text = '', ...scopes] = line.replace(/(^|\s)#.*/, '').trim().split(/\s+/)
    return { place: `line ${n + 1} of the option file`, text, scopes: scopes.length > 0 ? scopes : allScopes }
  })
  return entries.filter(({ text }) => text !== '')
}

/** A problem contains nothing of the entry, because it may be a secret. */
function problemsOf ({ place, text, scopes }: Entry, collections: ReadonlySet<string>) {
  if (!validEntry.test(text)) return [`${place} must be ${namedToken.expected}`]
  // A scope in the place of the token is one whose token is missing.
  const isScope = validScope.test(text)
  if (isScope || !scopes.every(scope => validScope.test(scope))) {
    return [`${place} must be a token and then its scopes, each ${scope.expected}`]
  }
  return areKnown(scopes, collections) ? [] : [`${place} ${unknownIn(collections)}`]
}

function areKnown (scopes: readonly string[], collections: ReadonlySet<string>) {
  return scopes.every(scope => !scope.includes(':') || collections.has(scope.replace(/:.*/, '')))
}

function unknownIn (collections: ReadonlySet<string>) {
  return `has a scope for an unknown collection; the collections are: ${[...collections].join(', ')}`
}
