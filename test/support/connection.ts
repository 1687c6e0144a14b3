import { connect, type AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'

export interface Answer {
  status: number
  headers: Record<string, string>
  body: Buffer
}

interface Waiting {
  resolve (answer: Answer): void
  reject (error: Error): void
  /** Whether the response has headers for a body but no body (HEAD). */
  head: boolean
}

export type Connection = ReturnType<typeof connection>

/**
 * A connection that sends requests exactly as they are written, and reads their answers in order. What a client
 * library would mend, try again or hide, this one shows.
 */
export function connection (url: string) {
  const socket = open(url)
  socket.setTimeout(60_000, () => waiting.length > 0 && socket.destroy(new Error('nothing came for a minute')))
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

    /** Returns the response to a request. Fails if the connection is closed before. */
    send (request: string | Buffer, head = false) {
      return new Promise<Answer>((resolve, reject) => {
        if (!socket.writable) return reject(new Error(`The connection was closed: ${cause?.message}`, { cause }))
        waiting.push({ resolve, reject, head })
        socket.write(request)
      })
    }
  }
}

/** A request as text. */
export function written (method: string, target: string, body?: string | Buffer, headers: Record<string, string> = {}) {
  const fields = { host: 'x', ...headers, ...body !== undefined && { 'content-length': Buffer.byteLength(body) } }
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.concat([
    Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n`, 'latin1'), Buffer.from(body ?? '')
  ])
}

/** All responses in the received text, without responses to HEAD. Fails if there is anything else. */
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

/** Opens a connection to a URL or a local port, and collects what it receives until it is closed. */
export function open (to: string | number, options: { allowHalfOpen?: boolean } = {}) {
  const { hostname, port } = new URL(typeof to === 'number' ? `http://127.0.0.1:${to}` : to)
  const socket = connect({ host: hostname, port: Number(port), ...options }).setNoDelay().on('error', () => {})
  const pieces: Buffer[] = []
  socket.on('data', piece => pieces.push(piece))
  const received = new Promise<Buffer>(resolve => socket.on('close', () => resolve(Buffer.concat(pieces))))
  return Object.assign(socket, { received })
}

/** Sends pieces on a new connection, in which each character is a byte, and returns what it receives. */
export async function exchange (port: number, ...pieces: (string | Buffer)[]) {
  const socket = open(port)
  for (const piece of pieces) {
    socket.write(piece, 'latin1')
    if (pieces.length > 2) await sleep(1)
  }
  return String(await socket.received)
}

/** Makes an app listen, and returns a function that sends a request to it and reads the response. */
export async function listen (app: FastifyInstance) {
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  return Object.assign(sender(port), { port })
}

export function sender (port: number) {
  return async function send (text: string | Buffer) {
    const raw = await exchange(port, text)
    const [head = '', ...rest] = raw.split('\r\n\r\n')
    return { raw, ...headOf(head), body: rest.join('\r\n\r\n') }
  }
}

/** A request whose response closes the connection. Each of its characters is a byte. */
export function request (method: string, target: string, body = '', ...headers: string[]) {
  const head = [
    `${method} ${target} HTTP/1.1`, 'Host: x', 'Connection: close', ...headers,
    ...body ? [`Content-Length: ${Buffer.byteLength(body)}`] : []
  ]
  return `${head.join('\r\n')}\r\n\r\n${Buffer.from(body).toString('latin1')}`
}

/** The first complete response in the received text, and the rest. */
function take (bytes: Buffer, isHead = false) {
  const end = bytes.indexOf('\r\n\r\n')
  if (end === -1) return
  const { status, headers } = headOf(bytes.toString('latin1', 0, end))
  const bodiless = isHead || status < 200 || status === 204 || status === 304
  const framed = bodiless ? { body: Buffer.alloc(0), length: 0 } : bodyOf(bytes.subarray(end + 4), headers)
  return framed && {
    answer: { status, headers, body: framed.body } satisfies Answer,
    rest: bytes.subarray(end + 4 + framed.length)
  }
}

function headOf (text: string) {
  const [start = '', ...lines] = text.split('\r\n')
  const headers = Object.fromEntries(lines.map(line =>
    [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]))
  return { status: Number(start.split(' ')[1]), headers }
}

function bodyOf (bytes: Buffer, headers: Answer['headers']) {
  if (headers['transfer-encoding'] !== 'chunked') {
    const length = Number(headers['content-length'])
    if (Number.isNaN(length)) {
      throw new Error(`An answer does not tell how long it is: ${JSON.stringify(headers)} ${bytes}`)
    }
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
