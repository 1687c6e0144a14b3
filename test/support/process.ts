import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { uncovered } from './environment.js'

const defaults = { PORT: '0', DOCS: 'false', DATABASE_TIMEOUT: '60000', SHUTDOWN_TIMEOUT: '60000' }

export interface How {
  /** JavaScript that runs before the service. */
  script?: string
  /** A folder with another build. */
  folder?: string
  /** The file to run instead of the server. */
  entry?: string
  flags?: string[]
  /** Another runtime than this Node. */
  runtime?: string
  /** Options of the command line. */
  args?: string[]
  /** Runs `npm start` instead, without another build. */
  npm?: boolean
}

/**
 * Starts the service from the build as a process on a free port, without the documentation pages, which take a while
 * to load, and with timeouts for a busy machine. It is killed when the test ends.
 */
export function start (t: Pick<Test, 'teardown'>, env: NodeJS.ProcessEnv = {}, how: How = {}) {
  const imports = how.script ? [`--import=data:text/javascript,${encodeURIComponent(how.script)}`] : []
  const { runtime = process.execPath, entry = 'dist/src/server.js', flags = [], args = [] } = how
  // Node 26 prefers hooks that Node 20 does not have.
  const quiet = how.runtime ? [] : ['--disable-warning=DEP0205']
  const node = [runtime, ...quiet, ...imports, ...flags, entry]
  const [command = '', ...first] = how.npm ? ['npm', 'start', '--silent', '--ignore-scripts', '--'] : node
  const child = spawn(command, [...first, ...args], { cwd: how.folder, env: { ...uncovered, ...defaults, ...env } })
  let output = ''
  let errors = ''
  child.stdout.on('data', chunk => { output += chunk })
  child.stderr.on('data', chunk => { errors += chunk })
  const exit = once(child, 'close')
  t.teardown(() => {
    child.kill('SIGKILL')
    return exit // so that the next test can use its files
  })
  const says = async (text: string | RegExp) => {
    while (output.search(text) === -1) {
      await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
      if (child.exitCode !== null) throw new Error(`It ended with ${child.exitCode}: ${output}${errors}`)
    }
    return output.match(text)?.[1] ?? ''
  }
  return {
    process: child,
    exit,
    output: () => output,
    errors: () => errors,
    says,
    get url () { return says(/API at (http:\/\/[\d.:]+)/) }
  }
}

/** A script with which a package cannot be found. */
export function withoutPackage (name: string) {
  return `import { register } from 'node:module'
    register('data:text/javascript,' + encodeURIComponent(\`export function resolve (name, context, next) {
      return next(name === '${name}' ? 'not-installed' : name, context)
    }\`))`
}

/** A port that is in use. */
export async function takenPort (t: Test) {
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  return { server, port: (server.address() as AddressInfo).port }
}
