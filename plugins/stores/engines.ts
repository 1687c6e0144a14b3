import { memory } from './memory.js'
import { StartupError, type Engine, type EngineOptions } from './store.js'

/** Opens the engine for an address. Drivers are loaded only if they are needed. */
export async function engineAt (address: string, limits: EngineOptions): Promise<Engine> {
  if (address === 'memory') return { open: memory, start () {}, check () {}, close () {} }
  if (address.startsWith('sqlite:')) {
    const { sqlite } = await withDriver('libsql', 'DATABASE_URL', () => import('./sqlite.js'))
    return sqlite(address.slice('sqlite:'.length), limits)
  }
  if (/^postgres(ql)?:\/\//.test(address)) {
    const { postgres } = await withDriver('pg', 'DATABASE_URL', () => import('./postgres.js'))
    return postgres(address, limits)
  }
  throw new StartupError('The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.')
}

/** Loads a module that needs an optional package. */
export async function withDriver<T> (name: string, setting: string, load: () => Promise<T>) {
  try {
    return await load()
  } catch (error) {
    if (!/^(ERR_)?MODULE_NOT_FOUND$/.test(String((error as NodeJS.ErrnoException).code))) throw error
    throw new StartupError(`${setting} needs the package ${name}, which is not installed. Run: npm install ${name}`)
  }
}
