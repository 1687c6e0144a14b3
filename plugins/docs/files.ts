import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { StartupError } from '../startup.js'

/** The pages by their option: the folder of their files beside a bundle, and in the packages. */
const pages = {
  redoc: { title: 'Redoc', beside: 'redoc', files: 'node_modules/fastify-items-users/dist/redoc' },
  swaggerUi: { title: 'Swagger UI', beside: 'swagger-ui', files: 'node_modules/@fastify/swagger-ui/static' }
}

/** The folder of the bundle that this module is part of, or undefined if it is a file of its own. */
export function bundleFolder (module = import.meta.url) {
  if (typeof __dirname === 'string') return __dirname // only CommonJS has it
  return /\/plugins\/docs\/files\.[jt]s$/.test(module) ? undefined : dirname(fileURLToPath(module))
}

/** The folder of the files of Redoc in this package. */
export function redocFolder (module = import.meta.url) {
  return fileURLToPath(new URL(module.endsWith('.ts') ? '../../dist/redoc' : '../../redoc', module))
}

/** The folder beside a bundle with the files of a page. */
export function besideBundle (bundle: string, page: keyof typeof pages) {
  const { title, beside, files } = pages[page]
  const folder = join(bundle, beside)
  if (existsSync(folder)) return folder
  throw new StartupError(`The files of ${title} are missing. Copy ${files} to ${folder}, or set the option ${page} of docs to false.`)
}
