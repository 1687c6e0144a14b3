import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

// Node calls `resolve` and `load` for each module. Compiled files are cached, so that most processes do not load TypeScript.
// `shortCircuit` skips the hooks of tap, which ask the main thread for mocks.

const require = createRequire(import.meta.url)
const cache = fileURLToPath(new URL('../../node_modules/.cache/typescript/', import.meta.url))
const settings = ['typescript/package.json', '../../tsconfig.json'].map(file => readFileSync(require.resolve(file), 'utf8'))
mkdirSync(cache, { recursive: true })

/** Finds the source of a module that is imported by the name of its compiled file. TypeBox loads faster as CommonJS. */
export async function resolve (specifier, context, next) {
  if (specifier.startsWith('.') && specifier.endsWith('.js')) {
    const source = new URL(specifier.replace(/\.js$/, '.ts'), context.parentURL)
    if (existsSync(source)) return { url: source.href, format: 'module', shortCircuit: true }
  }
  if (specifier === '@sinclair/typebox') return next(pathToFileURL(require.resolve(specifier)).href, context)
  if (specifier.startsWith('node:')) return { url: specifier, format: 'builtin', shortCircuit: true }
  return next(specifier, context)
}

export async function load (url, context, next) {
  if (context.format === 'builtin' || context.format === 'commonjs') return { format: context.format, shortCircuit: true }
  if (!url.endsWith('.ts')) return next(url, context)
  const path = fileURLToPath(url)
  return { format: 'module', source: compiled(basename(path), readFileSync(path, 'utf8')), shortCircuit: true }
}

function compiled (name, source) {
  const key = createHash('sha256').update(JSON.stringify([name, source, settings])).digest('hex')
  const file = `${cache}${key}.js`
  if (existsSync(file)) return readFileSync(file, 'utf8')
  const text = compile(name, source)
  writeFileSync(`${file}.${process.pid}`, text)
  renameSync(`${file}.${process.pid}`, file)
  return text
}

function compile (fileName, source) {
  const ts = require('typescript')
  const { config } = ts.parseConfigFileTextToJson('tsconfig.json', settings[1])
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, '.')
  const compilerOptions = { ...options, noEmit: false, module: ts.ModuleKind.ESNext, inlineSourceMap: true, inlineSources: true }
  return ts.transpileModule(source, { fileName, compilerOptions }).outputText
}
