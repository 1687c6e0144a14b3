import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { StoreUnavailableError } from '../errors.js'
import type { Plan } from '../query.js'
import type { List, Page } from '../store.js'
import type { Chunk, Entry } from './sorted-index.js'

/** A list with more characters is a stream. */
const maxWhole = 1024 * 1024
/** A list with fewer characters is a string, which Node writes together with the headers. */
const maxString = 1024

/** So many parts of an index are visited in one turn of the event loop. */
const partsPerTurn = 4

/** Returns a function that returns the list of all records of an index: in one piece or, if they are long, as a stream. */
export function wholeList (chunks: Chunk[]): () => List {
  const size = chunks.reduce((sum, { size }) => sum + size, 0)
  // There is one piece per turn of the event loop, so that a client that reads fast does not block the others.
  if (size >= maxWhole) return () => streamOf(bytesOf, inTurns(chunks, { deadline: Infinity }, 1))
  const list = size < maxString ? jsonOf(chunks.flatMap(({ entries }) => entries)) : Buffer.concat([...chunks.map(bytesOf), Buffer.from(']')])
  if (typeof list !== 'string') list.write('[') // instead of the first comma
  return () => list
}

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
    list: size < maxWhole ? jsonOf(given) : streamOf(encoded, given.map(entry => [entry]), limit < Infinity ? [] : parts),
    ...last && { next: cursorOf({ position: last.position, value: sort && last.values[sort.name] }) }
  }
}

export async function countEntries (entries: Iterable<Entry[]>, timeout: number) {
  let count = 0
  for await (const part of inTurns(entries, { deadline: Date.now() + timeout })) count += part.length
  return count
}

/** Waits for the next turn of the event loop from time to time, so that a long query does not delay other requests. */
async function * inTurns<T> (parts: Iterable<T>, time: { deadline: number }, perTurn = partsPerTurn) {
  let visited = 0
  for (const part of parts) {
    yield part
    if (++visited % perTurn > 0) continue
    await nextTurn()
    if (Date.now() > time.deadline) throw new StoreUnavailableError(new Error('The query took too long'))
  }
}

/** A stream of a JSON array with the entries of all parts. The first part is not empty. */
function streamOf<T> (encode: (part: T) => Buffer, ...given: (Iterable<T> | AsyncIterable<T>)[]) {
  return Readable.from(pieces(), { objectMode: false })

  async function * pieces () {
    let isFirst = true
    yield '['
    for (const parts of given) {
      for await (const part of parts) {
        yield isFirst ? encode(part).subarray(1) : encode(part)
        isFirst = false
      }
    }
    yield ']'
  }
}

function jsonOf (entries: Entry[]) {
  return `[${entries.map(({ json }) => json).join(',')}]`
}

/** The records of some entries, each after a comma. */
function encoded (entries: Entry[]) {
  return Buffer.from(entries.map(({ json }) => `,${json}`).join(''))
}

/** The bytes of a chunk. After a change of the records, only one chunk is encoded again. */
function bytesOf (chunk: Chunk) {
  return (chunk.bytes ??= encoded(chunk.entries))
}
