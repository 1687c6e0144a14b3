import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { TObject } from '@sinclair/typebox'
import type { Test } from 'tap'
import { openEngine } from '../../plugins/stores.js'
import type { Page, Store, StoreDefinition } from '../../plugins/stores/store.js'
import { patient } from './engines.js'

export type Any = { id: number, [name: string]: unknown }
export type AnyStore = Store<Any>
export type AnyDefinition = Partial<StoreDefinition<Any>> & { name: string }

/** A definition with these fields, of which some are required. The service chooses the ids. */
export function define (name: string, properties: object, required: string[] = [], more: object = {}): AnyDefinition {
  const schema = { type: 'object', required: ['id', ...required], properties: { id: { type: 'integer' }, ...properties } } as unknown as TObject
  return { name, schema, idSource: 'server', ...more }
}

/** Opens an engine with these collections, and starts it. It is closed when the test ends, or by `close`. */
export async function openStores (t: Pick<Test, 'teardown'>, url: string, definitions: AnyDefinition[], options: object = {}) {
  const lines: string[] = []
  const log = { info: (line: string) => { lines.push(line) }, warn: (line: string) => { lines.push(line) } }
  const engine = await openEngine(url, { ...patient, log, ...options })
  let closing: unknown
  const close = async () => { await (closing ??= engine.close()) }
  t.teardown(close)
  const stores = new Map(definitions.map(definition => [definition.name, engine.open({ seed: [], ...definition } as StoreDefinition<Any>)]))
  try {
    await engine.start()
  } catch (error) {
    await close()
    throw error
  }
  return { engine, close, lines, store: (name: string) => stores.get(name) as AnyStore }
}

export async function textOf ({ list }: Page) {
  return text(Readable.from(list))
}

export async function all (store: AnyStore): Promise<Any[]> {
  return JSON.parse(await textOf(await store.select({})))
}

/** The results of calls that run at the same time: the record, or the code and path of the error. */
export async function outcomes (calls: (() => unknown)[]) {
  const settled = await Promise.allSettled(calls.map(async call => call()))
  return settled.map(outcome => outcome.status === 'fulfilled'
    ? outcome.value && JSON.parse(String(outcome.value))
    : `${outcome.reason.code ?? outcome.reason.message} ${outcome.reason.path ?? ''}`.trim())
}
