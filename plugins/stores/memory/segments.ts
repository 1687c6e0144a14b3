import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { List } from '../store.js'

/** A segment takes records until they have so many characters together. */
const segmentSize = 64 * 1024
/** A list with more characters is a stream. */
const maxWhole = 1024 * 1024
/** A list with fewer characters is a string, which Node writes together with the headers. */
const maxString = 1024

/** Records as JSON, in the order of their positions. A segment with `bytes` may be part of a list, so it is replaced instead of changed. */
interface Segment {
  positions: number[]
  records: string[]
  /** Number of characters. */
  size: number
  /** The records, each after a comma. */
  bytes?: Buffer
}

/** Stores records as JSON in segments, so that after a change only one segment of a list is encoded again. */
export function segmentedJson () {
  const segments: Segment[] = []
  let lastPosition = 0
  /** The list as of now: in one piece or, if it is long, the segments that it consists of. */
  let current: string | Buffer | Segment[] | undefined

  return { add, at, change, list, page }

  /** Adds a record at the end and returns its position. */
  function add (json: string) {
    const last = segments.at(-1)
    const isFull = !last || last.size >= segmentSize
    const segment = isFull ? segmentOf([], []) : last.bytes ? segmentOf([...last.positions], [...last.records]) : last
    segments[isFull ? segments.length : segments.length - 1] = segment
    Number(json) // V8 then keeps it in one piece, not in those that it was concatenated from, and needs 0.4 of the memory
    segment.positions.push(++lastPosition)
    segment.records.push(json)
    segment.size += json.length
    current = undefined
    return lastPosition
  }

  function at (position: number) {
    const { segment, place } = locate(position)
    return segment.records[place] as string
  }

  /** Replaces the record at a position, or removes it if there is no other. */
  function change (position: number, json?: string) {
    const { index, segment: { positions, records }, place } = locate(position)
    const changed = json === undefined
      ? segmentOf(positions.toSpliced(place, 1), records.toSpliced(place, 1))
      : segmentOf([...positions], records.with(place, json))
    segments.splice(index, 1, ...changed.size > 0 ? split(changed) : [])
    mergeSmall(index)
    mergeSmall(index - 1)
    current = undefined
  }

  /** Merges a segment with the next one if both are small. */
  function mergeSmall (index: number) {
    const [one, next] = [segments[index], segments[index + 1]]
    if (!one || !next || one.size + next.size > segmentSize / 2) return
    segments.splice(index, 2, segmentOf([...one.positions, ...next.positions], [...one.records, ...next.records]))
  }

  /** Returns all records as of now. Between two changes, the list is built once. */
  function list (): List {
    current ??= joined(segments)
    return Array.isArray(current) ? Readable.from(chunksOf(current, bytesOf)) : current
  }

  /** Returns at most `limit` records after this position. */
  function page (limit: number, after: number) {
    const positions: number[] = []
    const records: string[] = []
    for (let index = Math.max(0, indexOf(after)); index < segments.length && records.length <= limit; index++) {
      const segment = segments[index] as Segment
      const from = lowerBound(segment.positions, after + 1)
      positions.push(...segment.positions.slice(from, from + limit + 1))
      records.push(...segment.records.slice(from, from + limit + 1))
    }
    const given = records.slice(0, limit)
    const isLong = given.reduce((sum, { length }) => sum + length, 0) >= maxWhole
    const list = isLong ? Readable.from(chunksOf(given, record => Buffer.from(`,${record}`))) : `[${given.join(',')}]`
    return { list, ...records.length > limit && { next: Number(positions[limit - 1]) } }
  }

  function locate (position: number) {
    const index = indexOf(position)
    const segment = segments[index] as Segment
    return { index, segment, place: lowerBound(segment.positions, position) }
  }

  /** The index of the segment that contains a position. */
  function indexOf (position: number) {
    return lowerBound(segments, position + 1, ({ positions }) => Number(positions[0])) - 1
  }
}

function segmentOf (positions: number[], records: string[]): Segment {
  return { positions, records, size: records.reduce((sum, { length }) => sum + length, 0) }
}

/** Splits a segment that has grown, because a list sends a segment in one piece. */
function split (segment: Segment): Segment[] {
  const { positions, records, size } = segment
  const half = records.length >> 1
  if (size < segmentSize * 2 || half === 0) return [segment]
  return [[0, half], [half]].flatMap(range => split(segmentOf(positions.slice(...range), records.slice(...range))))
}

function bytesOf (segment: Segment) {
  return (segment.bytes ??= Buffer.from(`,${segment.records.join(',')}`))
}

/** The records of all segments. If they are long, it returns the segments. */
function joined (segments: Segment[]) {
  const size = segments.reduce((sum, { size }) => sum + size, 0)
  if (size < maxString) return `[${segments.flatMap(({ records }) => records).join(',')}]`
  if (size >= maxWhole) {
    for (const last of segments.slice(-1)) bytesOf(last) // so that it does not change
    return [...segments]
  }
  const bytes = Buffer.concat([...segments.map(bytesOf), Buffer.from(']')])
  bytes.write('[') // instead of the first comma
  return bytes
}

/**
 * A list in pieces, each after a comma. There is one piece per turn of the event loop, so that a client that reads fast does
 * not block the others.
 */
async function * chunksOf<T> (pieces: T[], bytesOf: (piece: T) => Buffer) {
  yield '['
  for (const [n, piece] of pieces.entries()) {
    await nextTurn()
    yield n === 0 ? bytesOf(piece).subarray(1) : bytesOf(piece)
  }
  yield ']'
}

/** The index of the first of these ascending values that is not less than `least`. */
function lowerBound<T> (values: T[], least: number, numberOf: (value: T) => number = Number) {
  let from = 0
  let to = values.length
  while (from < to) {
    const middle = (from + to) >>> 1
    if (numberOf(values[middle] as T) < least) from = middle + 1
    else to = middle
  }
  return from
}
