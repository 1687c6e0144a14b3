import { isIP } from 'node:net'
import { Ajv, type ErrorObject } from 'ajv'
import { ajvOptions, explain } from '../plugins/http/validation.js'
import { Config } from '../schemas/config.js'

/** Reads the configuration from the environment, or tells everything that is wrong with it. */
export function readConfig (env: NodeJS.ProcessEnv = process.env): Config {
  // It runs once, so to make it fast would take longer than it does.
  const ajv = new Ajv({ ...ajvOptions, code: { optimize: false }, coerceTypes: true, useDefaults: true, formats: { networks, redis } })
  const validate = ajv.compile<Config>(Config)
  const config: unknown = { ...env }
  if (validate(config)) return config
  const faults = (validate.errors as ErrorObject[]).map(error => `  ${nameOf(error)} ${explain(error)}`)
  throw new ConfigError(['The environment does not configure the service:', ...faults].join('\n'))
}

export class ConfigError extends Error {}

/** The variable at fault: itself, or one that it goes with. */
function nameOf ({ instancePath, params }: ErrorObject) {
  return instancePath.slice(1) || params.property
}

/** Tells whether a text is a list of addresses and ranges of them. */
function networks (text: string) {
  return text.split(',').every(network => {
    const [address = '', bits, ...more] = network.split('/')
    const width = { 4: 32, 6: 128 }[isIP(address)] ?? -1
    return more.length === 0 && width > 0 && (bits === undefined || (/^[1-9]\d*$/.test(bits) && Number(bits) <= width))
  })
}

/** Tells whether a text is a URL that its driver can read; where it cannot, it would say so with the password in it. */
function redis (text: string) {
  return /^rediss?:\/\/./.test(text) && URL.canParse(text) && !/%(?![\dA-Fa-f]{2})/.test(text)
}
