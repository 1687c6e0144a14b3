import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

// Node calls `resolve` and `load` for each module. Compiled files are cached, so that most processes do not load TypeScript.
// `shortCircuit` skips the hooks of tap, which ask the main thread for mocks.

const require = createRequire(import.meta.url)
const modules = fileURLToPath(new URL('../../node_modules/', import.meta.url))
const cache = `${modules}.cache/typescript/`
const settings = ['typescript/package.json', '../../tsconfig.json'].map(file => readFileSync(require.resolve(file), 'utf8'))
const installed = readFileSync(`${modules}.package-lock.json`, 'utf8')
mkdirSync(cache, { recursive: true })

/** These load faster as CommonJS, and without Node's search for the names that they export. */
const packages = ['@sinclair/typebox', 'fast-json-stringify', 'fastify', 'ioredis']

/** Finds the source of a module that is imported by the name of its compiled file. */
export async function resolve (specifier, context, next) {
  if (specifier.startsWith('.') && specifier.endsWith('.js')) {
    const source = new URL(specifier.replace(/\.js$/, '.ts'), context.parentURL)
    if (existsSync(source)) return { url: source.href, format: 'module', shortCircuit: true }
  }
  const path = packages.includes(specifier) && pathFrom(context.parentURL, specifier)
  if (path && path.startsWith(modules)) return { url: `${pathToFileURL(path)}?required`, format: 'module', shortCircuit: true }
  if (path) return next(pathToFileURL(path).href, context)
  if (specifier.startsWith('node:')) return { url: specifier, format: 'builtin', shortCircuit: true }
  return next(specifier, context)
}

export async function load (url, context, next) {
  if (context.format === 'builtin' || context.format === 'commonjs') return { format: context.format, shortCircuit: true }
  if (url.endsWith('?required')) return { format: 'module', source: cached([url, installed], () => required(fileURLToPath(url))), shortCircuit: true }
  if (!url.endsWith('.ts')) return next(url, context)
  const path = fileURLToPath(url)
  return { format: 'module', source: cached(inputsOf(path), () => compile(path)), shortCircuit: true }
}

/** The path of a CommonJS module, if it is installed for this parent. */
function pathFrom (parent, specifier) {
  try {
    return createRequire(parent).resolve(specifier)
  } catch {} // Node has a better message
}

/** A module that exports what a CommonJS module exports. */
function required (path) {
  const names = Object.keys(require(path)).filter(name => name !== 'default')
  return `import { createRequire } from 'node:module'
    const exported = createRequire(import.meta.url)(${JSON.stringify(path)})
    export default exported
    export const { ${names.join()} } = exported`
}

/** Whether a source file has been compiled. */
export function isCached (path) {
  return existsSync(fileOf(inputsOf(path)))
}

/** Stores the compiled text of a source file. */
export function store (path, text) {
  cached(inputsOf(path), () => text)
}

function inputsOf (path) {
  return [basename(path), readFileSync(path, 'utf8'), settings]
}

/** What `make` returns, which is stored in a file for all processes that have the same inputs. */
function cached (inputs, make) {
  const file = fileOf(inputs)
  if (existsSync(file)) return readFileSync(file, 'utf8')
  const text = make()
  writeFileSync(`${file}.${process.pid}`, text)
  renameSync(`${file}.${process.pid}`, file)
  return text
}

function fileOf (inputs) {
  return `${cache}${createHash('sha256').update(JSON.stringify(inputs)).digest('hex')}.js`
}

function compile (path) {
  const ts = require('typescript')
  const { config } = ts.parseConfigFileTextToJson('tsconfig.json', settings[1])
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, '.')
  const compilerOptions = { ...options, noEmit: false, module: ts.ModuleKind.ESNext, inlineSourceMap: true, inlineSources: true }
  return ts.transpileModule(readFileSync(path, 'utf8'), { fileName: basename(path), compilerOptions }).outputText
}
