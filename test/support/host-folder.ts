import { execFile } from 'node:child_process'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { ensureBuilt } from './built.js'
import { uncovered } from './environment.js'
import { onceInRun } from './run.js'

const run = promisify(execFile)
const { version, dependencies, devDependencies } = JSON.parse(readFileSync('package.json', 'utf8'))

/** The file of the packed package in the folder of a host. */
export const tarball = `fastify-items-users-${version}.tgz`

/** A folder with the hosts in it, in which the package is installed as its users install it, with this version of Fastify. */
export function hostFolder (fastify: string): Promise<string> {
  return onceInRun(`host-${fastify.replaceAll(/\W/g, '')}`, async folder => {
    ensureBuilt()
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
    await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts', '--install-links'], { env: uncovered, cwd: folder })
    return folder
  })
}

function pick (versions: Record<string, string>, ...names: string[]) {
  return Object.fromEntries(names.map(name => [name, versions[name]]))
}
