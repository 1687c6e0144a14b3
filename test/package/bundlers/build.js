// Bundles bundled.js in the current folder into one file: node build.js esbuild|esbuild-cjs|rollup|webpack|ncc
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import ncc from '@vercel/ncc'
import commonjs from '@rollup/plugin-commonjs'
import json from '@rollup/plugin-json'
import nodeResolve from '@rollup/plugin-node-resolve'
import { build } from 'esbuild'
import { rollup } from 'rollup'
import webpack from 'webpack'

// Fastify uses `require`.
const banner = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"
const external = ['ioredis', 'libsql', 'pg']
const esbuild = { entryPoints: ['bundled.js'], bundle: true, platform: 'node', external, logLevel: 'error' }

const bundlers = {
  esbuild () {
    return build({ ...esbuild, format: 'esm', banner: { js: banner }, outfile: 'esbuild/host.mjs' })
  },

  'esbuild-cjs' () {
    return build({ ...esbuild, format: 'cjs', outfile: 'esbuild-cjs/host.cjs' })
  },

  async rollup () {
    const plugins = [nodeResolve({ preferBuiltins: true }), commonjs(), json()]
    const bundle = await rollup({ input: 'bundled.js', external, plugins, treeshake: false, onLog () {} })
    await bundle.write({ file: 'rollup/host.mjs', format: 'es', banner, inlineDynamicImports: true })
  },

  async webpack () {
    const compiler = webpack({
      mode: 'none',
      target: 'node',
      entry: './bundled.js',
      externals: external,
      output: { path: resolve('webpack'), filename: 'host.cjs' },
      plugins: [new webpack.optimize.LimitChunkCountPlugin({ maxChunks: 1 })]
    })
    await new Promise((resolve, reject) => compiler.run((error, stats) => {
      if (error ?? stats.hasErrors()) reject(error ?? new Error(stats.toString({ all: false, errors: true })))
      else resolve()
    }))
  },

  async ncc () {
    const { code, assets } = await ncc(resolve('bundled.js'), { cache: false, quiet: true })
    for (const [name, { source }] of Object.entries({ ...assets, 'host.mjs': { source: code } })) {
      mkdirSync(dirname(join('ncc', name)), { recursive: true })
      writeFileSync(join('ncc', name), source)
    }
  }
}

await bundlers[process.argv[2]]()
