import { memory } from './memory.js'
import { StartupError } from '../startup.js'
import type { Engine, EngineOptions } from './store.js'

/** Opens the engine for an address. Drivers are loaded only if they are needed. */
export async function openEngine (address: string, limits: EngineOptions): Promise<Engine> {
  if (address === 'memory') return { open: memory, start () {}, check () {}, close () {} }
  if (address.startsWith('sqlite:')) {
    const { sqlite } = await import('./sqlite.js')
    return sqlite(address.slice('sqlite:'.length), limits)
  }
  if (/^postgres(ql)?:\/\//.test(address)) {
    const { postgres } = await import('./postgres.js')
    return postgres(address, limits)
  }
  throw new StartupError('The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.')
}
