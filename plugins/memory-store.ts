import type { TObject } from '@sinclair/typebox'
import { recordRules } from './definition/record-rules.js'
import { objectStore } from './object-store.js'
import { memoryStore } from './stores/memory.js'
import type { HasId, Store, StoreDefinition } from './stores/store.js'

/** Creates a store in memory, such as one for each tenant. */
export function memory<T extends HasId> (definition: Omit<StoreDefinition<T>, 'name'>): Store<T> {
  return objectStore<T>(memoryStore(definition), recordRules(definition.schema as TObject))
}
