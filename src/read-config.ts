import { isIP } from 'node:net'
import type { ErrorObject, ValidateFunction } from 'ajv'
import { explain } from '../plugins/http/problems.js'
import { createAjv } from '../plugins/http/validation.js'
import { StartupError } from '../plugins/common/startup.js'
import { Config } from '../schemas/config.js'
import { optionOf } from './command-line.js'

let validator: ValidateFunction<Config> | undefined

/** Reads the configuration from the environment and from what the options set. Throws one error with all problems. */
export function readConfig (env: NodeJS.ProcessEnv = process.env, set: NodeJS.ProcessEnv = {}): Config {
  const validate = validator ??= createAjv({
    allErrors: true,
    coerceTypes: true,
    useDefaults: true,
    removeAdditional: 'all',
    formats: { networks, redis },
    code: { optimize: false } // it runs once
  }).compile<Config>(Config)
  const config: unknown = { ...env, ...set }
  validate(config)
  const problems = (validate.errors ?? []).map(error => `${nameOf(error, set)} ${explain(error)}${valueIn(error)}`)
  const { PORT, METRICS_PORT } = config as Config
  if (problems.length === 0 && METRICS_PORT === PORT && PORT !== 0) {
    problems.push('METRICS_PORT and PORT must be different')
  }
  if (problems.length > 0) throw new StartupError(['Invalid configuration:', ...problems].join('\n  '))
  return config as Config
}

/** The name of the invalid variable, or of the option that has set it. */
function nameOf ({ instancePath, params }: ErrorObject, set: NodeJS.ProcessEnv) {
  const variable = instancePath.slice(1) || params.property
  return variable in set ? optionOf(variable) : variable
}

/** The invalid value, unless it could contain a password. */
function valueIn ({ data, parentSchema }: ErrorObject) {
  const isPublic = parentSchema?.enum || ['integer', 'boolean'].includes(parentSchema?.type)
  return isPublic ? `, not ${JSON.stringify(data)}` : ''
}

/** Where data is stored, without a password. */
export function storageOf ({ DATABASE_URL: url }: Config) {
  if (url === 'memory') return 'memory (data is lost on exit)'
  if (url.startsWith('sqlite:')) return url
  const host = url.replace(/^[^/]*\/\/([^/?#]*@)?([^/?#]*).*/s, '$2')
  return host ? `PostgreSQL at ${host}` : 'PostgreSQL'
}

/** Returns whether a text is a list of IP addresses and ranges. */
function networks (text: string) {
  return text.split(',').every(network => {
    const [address = '', bits, ...more] = network.split('/')
    const width = { 4: 32, 6: 128 }[isIP(address)] ?? -1
    const isRange = bits === undefined || (/^[1-9]\d*$/.test(bits) && Number(bits) <= width)
    return more.length === 0 && width > 0 && isRange
  })
}

/** Returns whether ioredis can parse a URL. If it cannot, its error message would contain the password. */
function redis (text: string) {
  return /^rediss?:\/\/./.test(text) && URL.canParse(text) && !/%(?![\dA-Fa-f]{2})/.test(text)
}

/** Warnings about variables that look like one that is not set. */
export function misspelled (env: NodeJS.ProcessEnv) {
  const known = Object.keys(Config.properties)
  const unset = known.filter(name => env[name] === undefined)
  return Object.keys(env).filter(name => !known.includes(name)).flatMap(name => {
    const nearest = unset.find(other => isSimilar(name.toLowerCase(), other.toLowerCase()))
    return nearest ? [`There is no variable ${name}. Did you mean ${nearest}?`] : []
  })
}

/** Returns whether two words are the same but for one letter that is wrong, missing, additional or elsewhere. */
function isSimilar (one: string, other: string) {
  if (Math.abs(one.length - other.length) > 1) return false
  const withoutOne = (word: string) => [word, ...Array.from(word, (_, n) => word.slice(0, n) + word.slice(n + 1))]
  const words = new Set(withoutOne(other))
  return withoutOne(one).some(word => words.has(word))
}
