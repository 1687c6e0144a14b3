import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { TObject } from '@sinclair/typebox'
import type { Test } from 'tap'
import { recordRules } from '../../plugins/definition/record-rules.js'
import { checkerOf } from '../../plugins/http/validation.js'
import { objectStore } from '../../plugins/object-store.js'
import { openEngine } from '../../plugins/stores/open-engine.js'
import { collectionOf } from '../../plugins/stores/collection.js'
import { engineStore } from '../../plugins/stores/engine-store.js'
import type { HasId, JsonPage, JsonStore, StoreDefinition } from '../../plugins/stores/store.js'
import { databaseDefaults } from '../../schemas/config.js'

type Scope = Pick<Test, 'teardown'>
export type Any = { id: number, [name: string]: unknown }
export type AnyDefinition = Partial<StoreDefinition<Any>> & { name: string }

/** A definition with these fields, of which some are required. The service chooses the ids. */
export function define (name: string, properties: object, required: string[] = [], more: object = {}): AnyDefinition {
  const schema = {
    type: 'object',
    required: ['id', ...required],
    properties: { id: { type: 'integer' }, ...properties }
  } as unknown as TObject
  return { name, schema, idSource: 'server', ...more }
}

/** Opens an engine with these collections, and starts it. It is closed when the test ends, or by `close`. */
export async function openStores (t: Scope, url: string, definitions: AnyDefinition[], options: object = {}) {
  const lines: string[] = []
  const log = { info: (line: string) => { lines.push(line) }, warn: (line: string) => { lines.push(line) } }
  const complete = definitions.map(definition => ({ seed: [], ...definition }) as unknown as StoreDefinition<HasId>)
  const collections = new Map(complete.map(definition => [definition.name, collectionOf(definition)]))
  // The timeout also is enough for a busy machine.
  const all = { ...databaseDefaults, timeout: 60_000, checkerOf, collections, log, ...options }
  const engine = await openEngine(url, all)
  let closing: unknown
  const close = async () => { await (closing ??= engine.close()) }
  t.teardown(close)
  const stores = new Map(Array.from(collections, ([name, collection]) => [name, engineStore(engine, collection, all)]))
  try {
    await engine.start()
  } catch (error) {
    await close()
    throw error
  }
  return { engine, close, lines, store: (name: string) => stores.get(name) as JsonStore }
}

/** Opens a store for code of a host, in a database of its own. */
export async function openStore<T extends HasId> (
  t: Scope, url: string, definition: StoreDefinition<T>, options?: object
) {
  const { store } = await openStores(t, url, [definition as unknown as AnyDefinition], options)
  return objectStore<T>(store(definition.name), recordRules(definition.schema))
}

export async function textOf ({ list }: JsonPage) {
  return text(Readable.from(list))
}

export async function all (store: JsonStore): Promise<Any[]> {
  return JSON.parse(await textOf(await store.select({})))
}

/** The results of calls that run at the same time: the record, or the code and the paths of the error. */
export async function outcomes (calls: (() => unknown)[]) {
  const settled = await Promise.allSettled(calls.map(async call => call()))
  return settled.map(outcome => outcome.status === 'fulfilled'
    ? outcome.value && JSON.parse(String(outcome.value))
    : [
        outcome.reason.code ?? outcome.reason.message,
        ...(outcome.reason.problems ?? []).map(({ path }: { path: string }) => path)
      ].join(' ').trim())
}
