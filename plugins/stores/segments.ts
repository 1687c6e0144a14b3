import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { List, Page } from './store.js'

/** How many bytes a segment is made for; a record that is larger has one to itself. */
const segmentSize = 64 * 1024
/** How many records a segment holds at most: a position is its segment's number times this, plus the place in it. */
const segmentPlaces = 4096
/** The largest list that is given in one piece. */
const wholeSize = 1024 * 1024

const opening = Buffer.from('[')
const comma = ','.charCodeAt(0)
const closing = Buffer.from(']')

/** Records as JSON, each behind a comma. */
interface Segment {
  bytes: Buffer
  /** Where the record at each place ends, which is where the next one begins. */
  ends: number[]
}

/**
 * Keeps the JSON of records as the bytes that a list of them consists of. The lists being read share these bytes:
 * adding a record writes behind what they see, and removing one replaces the segment that it is cut out of.
 */
export function segmentedJson () {
  const segments = new Map<number, Segment>()
  let newest = 0
  let whole: string | Buffer | undefined

  return { add, at, remove, list, page }

  /** Adds a record at the end and gives its position, by which it is known from then on. */
  function add (json: string) {
    const size = 1 + Buffer.byteLength(json)
    let segment = segments.get(newest)
    if (segment === undefined || segment.ends.length === segmentPlaces || filled(segment) + size > segment.bytes.length) {
      segment = { bytes: Buffer.allocUnsafeSlow(Math.max(size, segmentSize)), ends: [] }
      segments.set(++newest, segment)
    }
    const start = filled(segment)
    segment.bytes[start] = comma
    segment.bytes.write(json, start + 1)
    segment.ends.push(start + size)
    whole = undefined
    return newest * segmentPlaces + segment.ends.length - 1
  }

  function at (position: number) {
    const { bytes, ends } = segmentOf(position)
    const place = position % segmentPlaces
    return bytes.toString('utf8', 1 + beginning(ends, place), ends[place])
  }

  function bytesAt (position: number) {
    const { bytes, ends } = segmentOf(position)
    const place = position % segmentPlaces
    return bytes.subarray(beginning(ends, place), ends[place])
  }

  function remove (position: number) {
    const segment = segmentOf(position)
    const place = position % segmentPlaces
    const start = beginning(segment.ends, place)
    const size = beginning(segment.ends, place + 1) - start
    const bytes = Buffer.allocUnsafeSlow(segment.bytes.length)
    segment.bytes.copy(bytes, 0, 0, start)
    segment.bytes.copy(bytes, start, start + size, filled(segment))
    segment.bytes = bytes
    segment.ends = segment.ends.map((end, n) => n < place ? end : end - size)
    if (filled(segment) === 0) segments.delete(Math.floor(position / segmentPlaces))
    whole = undefined
  }

  /** Every record as of now. Between two changes, a list is made once. */
  function list () {
    if (whole !== undefined) return whole
    const list = joined(Array.from(segments.values(), segment => segment.bytes.subarray(0, filled(segment))))
    if (!(list instanceof Readable)) whole = list
    return list
  }

  /** So many of the records behind this position. */
  function page (limit: number, after: number): Page {
    const found: number[] = []
    for (const position of behind(after)) if (found.push(position) > limit) break
    const given = found.slice(0, limit)
    return { list: joined(given.map(bytesAt)), ...found.length > limit && { next: given.at(-1) } }
  }

  /** The positions at which there is a record, from this one on. */
  function * behind (position: number) {
    let place = position % segmentPlaces + 1
    for (let number = Math.floor(position / segmentPlaces); number <= newest; number++, place = 0) {
      const { ends = [] } = segments.get(number) ?? {}
      for (; place < ends.length; place++) if (beginning(ends, place) < Number(ends[place])) yield number * segmentPlaces + place
    }
  }

  function segmentOf (position: number) {
    const segment = segments.get(Math.floor(position / segmentPlaces))
    if (segment === undefined) throw new RangeError(`There is no record at position ${position}`)
    return segment
  }
}

/** Where the record at a place begins. */
function beginning (ends: number[], place: number) {
  return place === 0 ? 0 : Number(ends[place - 1])
}

function filled ({ ends }: Segment) {
  return beginning(ends, ends.length)
}

/** A list of records that stand behind commas: in one piece or, where that is much, piece by piece. */
function joined (records: Buffer[]): List {
  const pieces = [opening, ...records.slice(0, 1).map(first => first.subarray(1)), ...records.slice(1), closing]
  const size = pieces.reduce((sum, { length }) => sum + length, 0)
  if (size > wholeSize) return Readable.from(inTurn(pieces), { objectMode: false })
  const bytes = Buffer.concat(pieces, size)
  // Node writes a short string together with the headers, and a buffer after them.
  return size > 4096 ? bytes : bytes.toString()
}

/** Gives one piece a turn of the event loop: a client that reads as fast as we write would keep all others waiting. */
async function * inTurn (pieces: Buffer[]) {
  for (const piece of pieces) {
    yield piece
    await nextTurn()
  }
}
