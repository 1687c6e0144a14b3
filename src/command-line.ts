import { parseArgs, type ParseArgsConfig } from 'node:util'
import type { TSchema } from '@sinclair/typebox'
import { StartupError } from '../plugins/common/startup.js'
import { version } from '../plugins/common/version.js'
import { Config } from '../schemas/config.js'

/** The options, and the variables that they set. */
const settings = { host: 'HOST', port: 'PORT', database: 'DATABASE_URL', collections: 'COLLECTIONS_FILE' } as const
const settingEntries = Object.entries(settings)

const options: NonNullable<ParseArgsConfig['options']> = {
  ...Object.fromEntries(settingEntries.map(([name]) => [name, { type: 'string' } as const])),
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' }
}

/** The option that sets a variable. */
export function optionOf (variable: string) {
  return `--${settingEntries.find(([, name]) => name === variable)?.[0]}`
}

/** Returns the variables that the options set, or the text that they ask for. An invalid option is an error. */
export function readCommandLine (args: string[]): { text?: string, set?: NodeJS.ProcessEnv } {
  const values = parse(args)
  if (values.help) return { text: helpText() }
  if (values.version) return { text: version }
  const given = settingEntries.filter(([name]) => name in values)
  return { set: Object.fromEntries(given.map(([name, variable]) => [variable, String(values[name])])) }
}

function parse (args: string[]) {
  try {
    return parseArgs({ args, options }).values
  } catch (error) {
    const [reason] = (error as Error).message.split(/\.?\n|\. /, 1)
    throw new StartupError(`${reason}. ${hintFor(args)}`)
  }
}

/** An option that does not exist may have the name of a variable. */
function hintFor (args: string[]) {
  const unknown = args.filter(arg => arg.startsWith('--')).map(arg => arg.slice(2).replace(/=.*/, ''))
  const variables = unknown.filter(name => !(name in options)).map(name => name.toUpperCase().replaceAll('-', '_'))
  const variable = variables.find(name => name in Config.properties)
  if (variable) return `Set the environment variable ${variable} instead.`
  return `The options are ${Object.keys(options).map(name => `--${name}`).join(', ')}.`
}

function helpText () {
  const { properties } = Config
  return `Usage: fastify-items-users [options]

Serves items, users and your own collections over HTTP. Environment variables
configure the service, and options override them.

Options:
${table([
  ...settingEntries.map(([name, variable]) => [`--${name} ${variable}`, describe(properties[variable])]),
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
  return rows.map(([name = '', text = '']) => {
    const wrapped = text.replace(lines, `$1\n${' '.repeat(margin)}`).trimEnd()
    return `  ${name}`.padEnd(margin) + wrapped
  }).join('\n')
}
