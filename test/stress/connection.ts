import { connect } from 'node:net'

export interface Answer {
  status: number
  headers: Record<string, string>
  body: Buffer
}

interface Waiting {
  resolve (answer: Answer): void
  reject (error: Error): void
  /** Whether the answer has a body only in its headers. */
  head: boolean
}

export type Connection = ReturnType<typeof connection>

/**
 * A connection that sends requests exactly as they are written, and reads their answers in order. What a client
 * library would mend, try again or hide, this one shows.
 */
export function connection (url: string) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname).setNoDelay()
  socket.setTimeout(10_000, () => waiting.length > 0 && socket.destroy(new Error('nothing came for ten seconds')))
  const waiting: Waiting[] = []
  let received: Buffer = Buffer.alloc(0)
  let cause: Error | undefined
  socket.on('error', error => { cause = error })
  socket.on('data', chunk => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk])
    try {
      for (let taken = take(received, waiting[0]?.head); taken; taken = take(received, waiting[0]?.head)) {
        received = taken.rest
        const next = waiting.shift()
        if (!next) throw new Error('An answer came that nobody has asked for')
        next.resolve(taken.answer)
      }
    } catch (error) {
      socket.destroy(error as Error)
    }
  })
  socket.on('close', () => {
    for (const { reject } of waiting.splice(0)) reject(new Error('The connection was dropped', { cause }))
  })

  return {
    socket,

    /** Gives the answer to a request, or fails where the connection ends before it. */
    send (request: string | Buffer, head = false) {
      return new Promise<Answer>((resolve, reject) => {
        if (!socket.writable) return reject(new Error(`The connection was closed: ${cause?.message}`, { cause }))
        waiting.push({ resolve, reject, head })
        socket.write(request)
      })
    }
  }
}

/** A request as it is written. */
export function written (method: string, target: string, body?: string | Buffer, headers: Record<string, string> = {}) {
  const fields = { host: 'x', ...headers, ...body !== undefined && { 'content-length': Buffer.byteLength(body) } }
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.concat([Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n`, 'latin1'), Buffer.from(body ?? '')])
}

/** All the answers in what was received, none of which is to a HEAD; it fails where that is not all there is. */
export function answersIn (bytes: Buffer) {
  const answers: Answer[] = []
  let rest = bytes
  for (let taken = take(rest); taken; taken = take(rest)) {
    answers.push(taken.answer)
    rest = taken.rest
  }
  if (rest.length > 0) throw new Error(`This is no answer: ${rest.toString('latin1').slice(0, 300)}`)
  return answers
}

/** The first answer in what was received, when it is whole, and what comes after it. */
function take (bytes: Buffer, isHead = false) {
  const end = bytes.indexOf('\r\n\r\n')
  if (end === -1) return
  const [start = '', ...lines] = bytes.toString('latin1', 0, end).split('\r\n')
  const headers = Object.fromEntries(lines.map(line => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]))
  const status = Number(start.split(' ')[1])
  const bodiless = isHead || status < 200 || status === 204 || status === 304
  const framed = bodiless ? { body: Buffer.alloc(0), length: 0 } : bodyOf(bytes.subarray(end + 4), headers)
  return framed && { answer: { status, headers, body: framed.body } satisfies Answer, rest: bytes.subarray(end + 4 + framed.length) }
}

function bodyOf (bytes: Buffer, headers: Answer['headers']) {
  if (headers['transfer-encoding'] !== 'chunked') {
    const length = Number(headers['content-length'])
    if (Number.isNaN(length)) throw new Error(`An answer does not tell how long it is: ${JSON.stringify(headers)} ${bytes}`)
    return bytes.length < length ? undefined : { body: bytes.subarray(0, length), length }
  }
  const chunks: Buffer[] = []
  for (let at = 0; ;) {
    const line = bytes.indexOf('\r\n', at)
    const size = parseInt(bytes.toString('latin1', at, line), 16)
    const next = line + 2 + size + 2
    if (line === -1 || bytes.length < next) return
    if (size === 0) return { body: Buffer.concat(chunks), length: next }
    chunks.push(bytes.subarray(line + 2, line + 2 + size))
    at = next
  }
}
