import { isIP } from 'node:net'
import type { ErrorObject, ValidateFunction } from 'ajv'
import { explain } from '../plugins/http/problems.js'
import { createAjv } from '../plugins/http/validator.js'
import { Config } from '../schemas/config.js'

let validator: ValidateFunction<Config> | undefined

/** Reads the configuration from the environment. Throws one error that lists all problems. */
export function readConfig (env: NodeJS.ProcessEnv = process.env): Config {
  const validate = validator ??= compile()
  const config: unknown = { ...env }
  if (validate(config)) return config
  const problems = (validate.errors as ErrorObject[]).map(error => `  ${nameOf(error)} ${explain(error)}`)
  throw new ConfigError(['Invalid configuration:', ...problems].join('\n'))
}

function compile () {
  // The validator usually runs once, so optimizing its code would take longer than running it.
  const options = { code: { optimize: false }, coerceTypes: true, useDefaults: true, formats: { networks, redis }, keywords: ['expected'] }
  return createAjv({ ...options, removeAdditional: 'all' }).compile<Config>(Config)
}

/** An invalid configuration. The message lists all problems. */
export class ConfigError extends Error {}

/** The name of the invalid variable. */
function nameOf ({ instancePath, params }: ErrorObject) {
  return instancePath.slice(1) || params.property
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
