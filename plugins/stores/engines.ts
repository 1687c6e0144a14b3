import { memory } from './memory.js'
import { StartupError, type Engine, type EngineOptions } from './store.js'

/** The engine that an address names. A driver is loaded only where it is asked for. */
export async function engineAt (address: string, limits: EngineOptions): Promise<Engine> {
  if (address === 'memory') return { open: memory, check () {}, close () {} }
  if (address.startsWith('sqlite:')) {
    const { sqlite } = await withDriver('libsql', () => import('./sqlite.js'))
    return sqlite(address.slice('sqlite:'.length), limits)
  }
  if (/^postgres(ql)?:\/\//.test(address)) {
    const { postgres } = await withDriver('pg', () => import('./postgres.js'))
    return postgres(address, limits)
  }
  throw new StartupError('The store must be memory, sqlite:PATH or postgres://…')
}

/** Loads what needs a package that may not be installed. */
export async function withDriver<T> (name: string, load: () => Promise<T>) {
  try {
    return await load()
  } catch (error) {
    if (!/^(ERR_)?MODULE_NOT_FOUND$/.test(String((error as NodeJS.ErrnoException).code))) throw error
    throw new StartupError(`What is configured needs the package ${name}, which is not installed; npm install ${name} does it.`)
  }
}
