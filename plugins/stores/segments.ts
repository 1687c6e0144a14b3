import { LongList, maxWhole, type List, type Page, type Pieces } from './store.js'

/** Size of a segment in bytes. A larger record has its own segment. */
const segmentSize = 64 * 1024
/** The largest list that is sent as a string, in bytes. */
const stringSize = 1024

const opening = Buffer.from('[')
const comma = ','.charCodeAt(0)
const closing = Buffer.from(']')

/** Records as JSON, each after a comma. */
interface Segment {
  bytes: Buffer
  /** The position of each record. */
  positions: number[]
  /** The offset at which each record ends. */
  ends: number[]
  /** Whether a list that is being sent may contain these bytes. */
  isShared: boolean
}

/**
 * Stores records as the bytes of a JSON list, in segments. A long list uses these bytes while it is sent: a new record is
 * written after them, and removing a record replaces them. Positions do not depend on segments, so that small segments
 * can be merged.
 */
export function segmentedJson () {
  const segments: Segment[] = []
  /** The first position of each segment. */
  const firsts: number[] = []
  let lastPosition = 0
  /** The list as of now: in one piece or, if it is long, in several. */
  let whole: string | Buffer | Pieces | undefined

  return { add, at, remove, list, page }

  /** Adds a record at the end and returns its position. */
  function add (json: string) {
    const size = 1 + Buffer.byteLength(json)
    const { bytes, positions, ends } = segmentFor(size)
    const start = beginning(ends, ends.length)
    bytes[start] = comma
    bytes.write(json, start + 1)
    ends.push(start + size)
    positions.push(++lastPosition)
    whole = undefined
    return lastPosition
  }

  /** Returns the last segment, or a new one if the last has not enough room. */
  function segmentFor (size: number) {
    const last = segments.at(-1)
    const room = last ? last.bytes.length - filled(last) : 0
    if (last && size <= room) return last
    if (last && room > segmentSize / 8) segments.splice(-1, 1, merged([last]))
    const segment = { bytes: Buffer.allocUnsafeSlow(Math.max(size, segmentSize)), positions: [], ends: [], isShared: false }
    segments.push(segment)
    firsts.push(lastPosition + 1)
    return segment
  }

  function at (position: number) {
    const { segment, place } = locate(position)
    return segment.bytes.toString('utf8', 1 + beginning(segment.ends, place), segment.ends[place])
  }

  function remove (position: number) {
    const { index, segment, place } = locate(position)
    cut(segment, place, index === segments.length - 1)
    if (segment.ends.length === 0) replace(index, 1)
    mergeSmall(index)
    mergeSmall(index - 1)
    whole = undefined
  }

  /** Merges a segment with the next one if both are small. The last one is not merged, because records are added to it. */
  function mergeSmall (index: number) {
    const [one, next] = [segments[index], segments[index + 1]]
    if (!one || !next || index + 2 === segments.length || filled(one) + filled(next) > segmentSize / 2) return
    replace(index, 2, merged([one, next]))
  }

  function replace (index: number, count: number, ...by: Segment[]) {
    segments.splice(index, count, ...by)
    firsts.splice(index + by.length, count - by.length)
  }

  /** Returns all records as of now. Between two changes, the list is built once. */
  function list () {
    whole ??= joined(segments.map(filledBytes), segmentSize)
    return sent(whole)
  }

  /** Returns at most `limit` records after this position. */
  function page (limit: number, after: number): Page {
    const records: Buffer[] = []
    let last = after
    let isMore = false
    for (const { position, record } of behind(after)) {
      isMore = records.length === limit
      if (isMore) break
      records.push(record)
      last = position
    }
    return { list: sent(joined(records, maxWhole)), ...isMore && { next: last } }
  }

  function * behind (after: number) {
    for (let index = Math.max(0, indexOf(after)); index < segments.length; index++) {
      const { bytes, positions, ends } = segments[index] as Segment
      for (let place = firstFrom(positions, after + 1); place < ends.length; place++) {
        yield { position: Number(positions[place]), record: bytes.subarray(beginning(ends, place), ends[place]) }
      }
    }
  }

  /** Returns a list as it is sent. A long one uses the bytes of the segments. */
  function sent (list: string | Buffer | Pieces): List {
    if (typeof list === 'string' || Buffer.isBuffer(list)) return list
    for (const segment of segments) segment.isShared = true
    return new LongList(list)
  }

  function locate (position: number) {
    const index = indexOf(position)
    const segment = segments[index]
    const place = segment ? firstFrom(segment.positions, position) : 0
    if (segment?.positions[place] !== position) throw new RangeError(`There is no record at position ${position}`)
    return { index, segment, place }
  }

  /** The index of the segment that contains a position. */
  function indexOf (position: number) {
    return firstFrom(firsts, position + 1) - 1
  }
}

/** The index of the first of these ascending numbers that is not less than `least`. */
function firstFrom (numbers: number[], least: number) {
  let from = 0
  let to = numbers.length
  while (from < to) {
    const middle = (from + to) >>> 1
    if (Number(numbers[middle]) < least) from = middle + 1
    else to = middle
  }
  return from
}

/** The offset at which a record begins. */
function beginning (ends: number[], place: number) {
  return place === 0 ? 0 : Number(ends[place - 1])
}

function filled ({ ends }: Segment) {
  return beginning(ends, ends.length)
}

function filledBytes (segment: Segment) {
  return segment.bytes.subarray(0, filled(segment))
}

/** Removes a record from a segment. The bytes are copied if a list uses them, or if more than half would be unused. */
function cut (segment: Segment, place: number, keepsRoom: boolean) {
  const { bytes, positions, ends, isShared } = segment
  const start = beginning(ends, place)
  const size = Number(ends[place]) - start
  const left = filled(segment) - size
  const capacity = keepsRoom || left > bytes.length / 2 ? bytes.length : left
  if (isShared || capacity < bytes.length) {
    segment.bytes = Buffer.allocUnsafeSlow(capacity)
    segment.isShared = false
    bytes.copy(segment.bytes, 0, 0, start)
  }
  bytes.copy(segment.bytes, start, start + size, left + size)
  positions.splice(place, 1)
  ends.splice(place, 1)
  for (let n = place; n < ends.length; n++) ends[n] = Number(ends[n]) - size
}

/** Copies the records of these segments into one segment without unused bytes. */
function merged (segments: Segment[]): Segment {
  const bytes = Buffer.allocUnsafeSlow(segments.reduce((size, segment) => size + filled(segment), 0))
  const ends: number[] = []
  let size = 0
  for (const segment of segments) {
    filledBytes(segment).copy(bytes, size)
    for (const end of segment.ends) ends.push(size + end)
    size = beginning(ends, ends.length)
  }
  return { bytes, positions: segments.flatMap(({ positions }) => positions), ends, isShared: false }
}

/** Builds a JSON list from records after commas: in one piece, or in several if it has more bytes than `maxSize`. */
function joined (records: Buffer[], maxSize: number): string | Buffer | Pieces {
  const buffers = [opening, ...records.slice(0, 1).map(first => first.subarray(1)), ...records.slice(1), closing]
  const size = buffers.reduce((sum, { length }) => sum + length, 0)
  if (size > maxSize) return { buffers }
  const bytes = Buffer.concat(buffers, size)
  // Node writes a short string together with the headers, and a buffer after them.
  return size > stringSize ? bytes : bytes.toString()
}
