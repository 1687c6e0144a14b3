import { Ajv, type ErrorObject } from 'ajv'
import { ajvOptions, explain } from '../plugins/validation.js'
import { Config } from '../schemas/config.js'

/** Reads the configuration from the environment, or tells everything that is wrong with it. */
export function readConfig (env: NodeJS.ProcessEnv = process.env): Config {
  const ajv = new Ajv({ ...ajvOptions, coerceTypes: true, useDefaults: true })
  const validate = ajv.compile<Config>(Config)
  const config: unknown = { ...env }
  if (validate(config)) return config
  const faults = (validate.errors as ErrorObject[]).map(error => `  ${error.instancePath.slice(1)} ${explain(error)}`)
  throw new ConfigError(['The environment does not configure the service:', ...faults].join('\n'))
}

export class ConfigError extends Error {}
