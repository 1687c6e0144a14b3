import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { StoreUnavailableError } from '../errors.js'
import type { Plan } from '../query.js'
import type { Page } from '../store.js'
import type { Entry } from './indexes.js'

/** A result with more characters is a stream. */
const maxWhole = 1024 * 1024

/** So many parts of an index are visited in one turn of the event loop. */
const partsPerTurn = 16

/** Reads the entries of a query. A long result is a stream. */
export async function readEntries (entries: Iterable<Entry[]>, { sort, limit, cursorOf }: Plan, timeout: number): Promise<Page> {
  const time = { deadline: Date.now() + timeout }
  const parts = inTurns(entries, time)
  const found: Entry[] = []
  let size = 0
  const isEnough = () => found.length > limit || (limit === Infinity && size >= maxWhole)
  for (let next = await parts.next(); !next.done; next = isEnough() ? { done: true, value: undefined } : await parts.next()) {
    found.push(...next.value)
    for (const { json } of next.value) size += json.length
  }
  const given = found.slice(0, limit)
  const last = found.length > limit ? given.at(-1) : undefined
  time.deadline = Infinity // from now on, the time depends on the client
  return {
    list: size < maxWhole ? `[${given.map(({ json }) => json).join(',')}]` : Readable.from(pieces(given, limit < Infinity ? [] : parts), { objectMode: false }),
    ...last && { next: cursorOf({ position: last.position, value: sort && last.values[sort.name] }) }
  }
}

/** Counts the entries of a query. */
export async function countEntries (entries: Iterable<Entry[]>, timeout: number) {
  let count = 0
  for await (const part of inTurns(entries, { deadline: Date.now() + timeout })) count += part.length
  return count
}

/** Waits for the next turn of the event loop from time to time, so that a long query does not delay other requests. */
async function * inTurns (parts: Iterable<Entry[]>, time: { deadline: number }) {
  let visited = 0
  for (const part of parts) {
    if (part.length > 0) yield part
    if (++visited % partsPerTurn > 0) continue
    await nextTurn()
    if (Date.now() > time.deadline) throw new StoreUnavailableError(new Error('The query took too long'))
  }
}

/** A JSON array of some entries and those in further parts. */
async function * pieces (first: Entry[], further: Iterable<Entry[]> | AsyncIterable<Entry[]>) {
  let before = '['
  for (const { json } of first) {
    yield before + json
    before = ','
  }
  for await (const part of further) yield part.map(({ json }) => `,${json}`).join('')
  yield ']'
}
