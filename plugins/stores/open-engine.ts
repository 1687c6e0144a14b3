import { StartupError } from '../common/startup.js'
import type { Engine, EngineOptions } from './engine.js'
import { memoryEngine } from './memory.js'

/** Opens the engine for an address. Drivers are loaded only if they are needed. */
export async function openEngine (address: string, options: EngineOptions): Promise<Engine> {
  if (address === 'memory') return memoryEngine(options.collections)
  if (address.startsWith('sqlite:')) {
    const { sqlite } = await import('./sqlite/sqlite.js')
    return sqlite(address.slice('sqlite:'.length), options)
  }
  if (/^postgres(ql)?:\/\//.test(address)) {
    const { postgres } = await import('./postgres/postgres.js')
    return postgres(address, options)
  }
  throw new StartupError('The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.')
}
