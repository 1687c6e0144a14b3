import { execFile } from 'node:child_process'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { uncovered } from './environment.js'
import { onceInRun } from './run.js'

const run = promisify(execFile)
const { version, dependencies, devDependencies } = JSON.parse(readFileSync('package.json', 'utf8'))

/** The file of the packed package in the folder of a host. */
export const tarball = `fastify-items-users-${version}.tgz`

/**
 * A folder with the hosts in it, in which the package is installed as its users install it, with this version of
 * Fastify.
 */
export function hostFolder (fastify: string): Promise<string> {
  return onceInRun(`host-${fastify.replaceAll(/\W/g, '')}`, async folder => {
    cpSync('test/package/hosts', folder, { recursive: true })
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], { env: uncovered })
    writeFileSync(join(folder, 'package.json'), JSON.stringify({
      type: 'module',
      dependencies: {
        'fastify-items-users': `file:${tarball}`,
        fastify,
        typebox: '1',
        zod: '4',
        ...pick(dependencies, '@fastify/swagger', '@fastify/helmet', '@fastify/cors'),
        ...pick(devDependencies, '@types/node')
      }
    }))
    await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts', '--install-links'],
      { env: uncovered, cwd: folder })
    return folder
  })
}

function pick (versions: Record<string, string>, ...names: string[]) {
  return Object.fromEntries(names.map(name => [name, versions[name]]))
}

/** The names of the options that a file declares. */
export function optionsIn (file: string, name: string) {
  const [, declared = ''] = new RegExp(`^export \\w+ ${name} (.+?)^}`, 'ms').exec(readFileSync(file, 'utf8')) ?? []
  return Array.from(declared.matchAll(/^ {2}(\w+)\??:/gm), ([, option = '']) => option)
}

type Resolution = 'bundler' | 'node16' | 'nodenext'

/** Compiles files in the folder of the hosts, and returns the errors. */
export async function compile (typescript: string, resolution: Resolution, files: string[], from: string) {
  writeFileSync(join(from, 'tsconfig.json'), JSON.stringify({
    compilerOptions: {
      strict: true,
      skipLibCheck: false,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      module: resolution === 'bundler' ? 'esnext' : resolution,
      moduleResolution: resolution,
      target: 'es2022',
      lib: ['es2023'],
      types: ['node']
    },
    files
  }))
  const { stdout, stderr } = await run(process.execPath, [resolve(typescript, 'lib/tsc.js')],
    { env: uncovered, cwd: from }).catch(error => error)
  return stdout + stderr
}
