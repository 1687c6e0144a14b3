import { isIP } from 'node:net'
import { parseArgs, type ParseArgsConfig } from 'node:util'
import type { ErrorObject, ValidateFunction } from 'ajv'
import type { TSchema } from '@sinclair/typebox'
import { misspelledIn } from '../plugins/plugin.js'
import { explain } from '../plugins/schema/problems.js'
import { createAjv } from '../plugins/schema/validation.js'
import { StartupError } from '../plugins/startup.js'
import { version } from '../plugins/version.js'
import { Config } from '../schemas/config.js'

let validator: ValidateFunction<Config> | undefined

/** Reads the configuration from the environment and from what the options set. Throws one error that lists all problems. */
export function readConfig (env: NodeJS.ProcessEnv = process.env, set: NodeJS.ProcessEnv = {}): Config {
  // The validator usually runs once, so optimizing its code would take longer than running it.
  const ajvOptions = { code: { optimize: false }, coerceTypes: true, useDefaults: true, formats: { networks, redis }, keywords: ['expected'] }
  const validate = validator ??= createAjv({ ...ajvOptions, removeAdditional: 'all' }).compile<Config>(Config)
  const config: unknown = { ...env, ...set }
  validate(config)
  const problems = (validate.errors ?? []).map(error => `${nameOf(error)} ${explain(error)}${valueIn(error)}`)
  const { PORT, METRICS_PORT } = config as Config
  if (problems.length === 0 && METRICS_PORT === PORT && PORT !== 0) problems.push('METRICS_PORT and PORT must be different')
  if (problems.length > 0) throw new StartupError(['Invalid configuration:', ...problems].join('\n  '))
  return config as Config

  /** The name of the invalid variable, or of the option that has set it. */
  function nameOf ({ instancePath, params }: ErrorObject) {
    const variable = instancePath.slice(1) || params.property
    return variable in set ? `--${settings.find(([, name]) => name === variable)?.[0]}` : variable
  }
}

/** Warnings about variables that look like one that is not set. */
export function misspelled (env: NodeJS.ProcessEnv) {
  const known = Object.keys(properties)
  return misspelledIn(Object.keys(env), known, known.filter(name => env[name] === undefined)).map(hint => `There is no variable ${hint}`)
}

/** Where data is stored, without a password. */
export function storageOf ({ DATABASE_URL: url }: Config) {
  if (url === 'memory') return 'memory (data is lost on exit)'
  if (url.startsWith('sqlite:')) return url
  return ['PostgreSQL', url.replace(/^[^/]*\/\/([^/?#]*@)?([^/?#]*).*/s, '$2')].filter(Boolean).join(' at ')
}

/** The invalid value, unless it could contain a password. */
function valueIn ({ data, parentSchema }: ErrorObject) {
  return parentSchema?.enum || ['integer', 'boolean'].includes(parentSchema?.type) ? `, not ${JSON.stringify(data)}` : ''
}

/** Returns whether a text is a list of IP addresses and ranges. */
function networks (text: string) {
  return text.split(',').every(network => {
    const [address = '', bits, ...more] = network.split('/')
    const width = { 4: 32, 6: 128 }[isIP(address)] ?? -1
    return more.length === 0 && width > 0 && (bits === undefined || (/^[1-9]\d*$/.test(bits) && Number(bits) <= width))
  })
}

/** Returns whether ioredis can parse a URL. If it cannot, its error message would contain the password. */
function redis (text: string) {
  return /^rediss?:\/\/./.test(text) && URL.canParse(text) && !/%(?![\dA-Fa-f]{2})/.test(text)
}

const { properties } = Config

/** The options that set a variable. */
const settings = Object.entries({ host: 'HOST', port: 'PORT', database: 'DATABASE_URL', collections: 'COLLECTIONS_FILE' } as const)

const options: NonNullable<ParseArgsConfig['options']> = {
  ...Object.fromEntries(settings.map(([name]) => [name, { type: 'string' } as const])),
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' }
}

/** Returns the variables that the options set, or the text that they ask for. Throws one line if an option is invalid. */
export function readCommandLine (args: string[]): { text?: string, set?: NodeJS.ProcessEnv } {
  const values = parse(args)
  if (values.help) return { text: helpText() }
  if (values.version) return { text: version }
  return { set: Object.fromEntries(settings.filter(([name]) => name in values).map(([name, variable]) => [variable, String(values[name])])) }
}

function parse (args: string[]) {
  try {
    // parseArgs accepts a negative number only after an equals sign.
    const isNegative = (arg = '') => /^-\d/.test(arg)
    const joined = args.flatMap((arg, n) => isNegative(args[n + 1]) ? `${arg}=${args[n + 1]}` : n > 0 && isNegative(arg) ? [] : arg)
    return parseArgs({ args: joined, options }).values
  } catch (error) {
    const [reason] = (error as Error).message.split(/\.?\n|\. /, 1)
    throw new StartupError(`${reason}. ${hintFor(args)}`)
  }
}

/** An option that does not exist may have the name of a variable. */
function hintFor (args: string[]) {
  const names = args.filter(arg => arg.startsWith('--')).map(arg => arg.slice(2).replace(/=.*/, ''))
  const variable = names.filter(name => !(name in options)).map(name => name.toUpperCase().replaceAll('-', '_')).find(name => name in properties)
  return variable ? `Set the environment variable ${variable} instead.` : `The options are ${Object.keys(options).map(name => `--${name}`).join(', ')}.`
}

function helpText () {
  return `Usage: fastify-items-users [options]

Serves items, users and your own collections over HTTP. Environment variables
configure the service, and options override them.

Options:
${table([
  ...settings.map(([name, variable]) => [`--${name} ${variable}`, describe(properties[variable])]),
  ['-h, --help', 'Shows this help'],
  ['-v, --version', 'Shows the version']
])}

Environment variables:
${table(Object.entries(properties).map(([name, schema]) => [name, describe(schema)]))}

Examples:
  fastify-items-users --port 8080
  fastify-items-users --host 0.0.0.0 --database sqlite:./data/items.db
  fastify-items-users --collections ./collections.json
  AUTH_TOKENS_FILE=./tokens LOG_LEVEL=warn fastify-items-users
  node --env-file=.env node_modules/.bin/fastify-items-users`
}

/** The description of a variable, without Markdown, with its values and its default. */
function describe ({ description = '', enum: values, default: value }: TSchema) {
  const notes = [values && `one of ${values.join(', ')}`, value !== undefined && `default: ${value}`].filter(Boolean)
  return description.replaceAll('`', '') + (notes.length > 0 ? ` (${notes.join('; ')})` : '')
}

/** Two columns in 80 characters. */
function table (rows: string[][]) {
  const margin = Math.max(...rows.map(([name = '']) => name.length)) + 4
  const lines = new RegExp(`(.{1,${80 - margin}})( |$)`, 'g')
  return rows.map(([name = '', text = '']) => `  ${name}`.padEnd(margin) + text.replace(lines, `$1\n${' '.repeat(margin)}`).trimEnd()).join('\n')
}
