import { deepStrictEqual, ok } from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { connection, written, type Connection } from '../support/connection.js'
import { newFolder } from '../support/folder.js'
import { until } from '../support/until.js'
import type { Scope } from './service.js'

/** A request, and the status of its response. */
export interface Sent {
  status: number
  method: string
  target: string
  body?: string
  headers?: Record<string, string>
}

interface Options {
  tolerated?: (number | 'dropped')[]
  /** Headers of every request. */
  headers?: Record<string, string>
  /** What makes the notes longer. */
  filler?: string
}

interface Load {
  clients?: number
  /** The pause of a client between two notes, in milliseconds. */
  pause?: number
  /** Requests that change nothing. One is sent after each note that is created. */
  others?: Sent[]
}

/** A note that one client uses. */
interface Note {
  id: number
  client: string
  /** What it may be in the database: a text, or undefined if it does not exist. */
  possible: Set<string | undefined>
  isCreated: boolean
}

interface Stored {
  id: number
  text: string
}

/** The settings of a service with the collection that the clients use, which may have more fields. */
export function notesIn (scope: Scope, more: object = {}) {
  const properties = { id: { type: 'integer' }, text: { type: 'string' }, ...more }
  const schema = { type: 'object', required: ['id', 'text'], properties }
  const file = `${newFolder(scope)}/collections.json`
  writeFileSync(file, JSON.stringify({ notes: { schema, idSource: 'client' } }))
  return { COLLECTIONS_FILE: file }
}

/**
 * Clients that create, read, replace and delete notes, and record what is acknowledged to them. Each response must have
 * the status of its request or one of those that are tolerated, and each client must see what it has written.
 */
export function ledger (scope: Scope, { tolerated = [], headers, filler = '' }: Options = {}) {
  const notes = new Map<number, Note>()
  const answers: Record<string, number> = {}
  const problems: Record<string, number> = {}
  let loads = 0

  /** Has clients use instances of a service in turn, until they are told to stop. */
  function write (urls: string[], { clients = 16, pause = 0, others = [] }: Load = {}) {
    const load = ++loads
    const stopping = new AbortController()
    const served = Array.from({ length: clients }, () => 0)
    const done = served.map((_, client) => run(client))
    scope.teardown(() => stopping.abort())
    return { stop, turn }

    async function stop () {
      stopping.abort()
      await Promise.all(done)
    }

    /** Waits until every request that is in progress has its response. */
    async function turn () {
      const before = [...served]
      await until(() => served.every((count, client) => count > (before[client] ?? 0)))
    }

    async function run (client: number) {
      const open = new Map<string, Connection>()
      let sent = client
      while (!stopping.signal.aborted) {
        await sleep(pause)
        const id = notes.size + 1
        await useNote({ id, client: `${load}.${client}`, possible: new Set([undefined]), isCreated: false })
      }
      for (const { socket } of open.values()) socket.destroy()

      /** Uses one note, until the outcome of a request is not known. */
      async function useNote (note: Note) {
        const { id } = note
        notes.set(id, note)
        const target = `/api/notes/${id}`
        if (!await create(note)) return
        if (id % 3 === 0) {
          const body = JSON.stringify({ text: `replaced ${id}${filler}` })
          if (!await change(note, `replaced ${id}${filler}`, { status: 200, method: 'PUT', target, body })) return
        }
        const read = await send({ status: 200, method: 'GET', target })
        if (read.status === 200) compareWith([JSON.parse(String(read.body))], [note])
        if (id % 50 === 0) await walk()
        const other = others[id % others.length]
        if (other) await send(other)
        if (id % 5 === 0) await change(note, undefined, { status: 204, method: 'DELETE', target })
      }

      /** Every second note has an idempotency key. It is sent again until it is acknowledged. */
      async function create (note: Note) {
        const { id } = note
        const key = id % 2 ? undefined : { 'idempotency-key': `note-${id}` }
        const text = `created ${id}${filler}`
        const body = JSON.stringify({ id, text })
        const attempts = key ? Infinity : 1
        for (let attempt = 1; attempt <= attempts && !note.isCreated; attempt++) {
          if (attempt > 1 && stopping.signal.aborted) break
          const request = { status: 201, method: 'POST', target: '/api/notes', body, headers: key }
          note.isCreated = await change(note, text, request)
        }
        return note.isCreated
      }

      /** Sends a change. Without a response that tells the outcome, the note may be as before and as after it. */
      async function change (note: Note, text: string | undefined, request: Sent) {
        note.possible.add(text)
        const { status } = await send(request)
        if (status === request.status) note.possible = new Set([text])
        return status === request.status
      }

      /** Follows the pages of the list. No note is on two of them, and those of this client are there. */
      async function walk () {
        const seen: Stored[] = []
        for (let target = '/api/notes?limit=500'; target !== '';) {
          const { status, headers, body } = await send({ status: 200, method: 'GET', target })
          if (status !== 200) return
          seen.push(...JSON.parse(String(body)))
          target = headers.link ? `/api/notes${/<(.+)>/.exec(headers.link)?.[1]}` : ''
        }
        compareWith(seen, [...notes.values()].filter(note => note.client === `${load}.${client}`))
      }

      async function send ({ status: expected, method, target, body, headers: own }: Sent) {
        const url = urls[sent++ % urls.length] ?? ''
        const used = open.get(url) ?? connection(url)
        open.set(url, used)
        const answer = await used.send(written(method, target, body, { ...headers, ...own })).catch(dropped)
        const { status } = answer
        count(answers, status)
        if (status !== expected && !tolerated.some(one => one === status)) {
          count(problems, `${method} ${url}${target}: ${status} instead of ${expected}`)
        }
        if (answer.headers.connection === 'close') open.delete(url)
        if (status === 503) await sleep(50)
        served[client] = (served[client] ?? 0) + 1
        return answer
      }

      async function dropped () {
        await sleep(20)
        return { status: 'dropped' as const, headers: { connection: 'close' } as Record<string, string>, body: '' }
      }
    }
  }

  /** Compares a list with what notes may be: each is there once, and those of a client are in order of creation. */
  function compareWith (list: Stored[], expected: Note[]) {
    const texts = new Map(list.map(({ id, text }) => [id, text]))
    if (texts.size < list.length) count(problems, 'a note is there twice')
    for (const { id, possible } of expected) {
      const text = texts.get(id)
      if (!possible.has(text)) count(problems, `note ${id} is ${text} and not ${[...possible].join(' or ')}`)
    }
    const newest: Record<string, number> = {}
    for (const { id } of list) {
      const { client, isCreated } = notes.get(id) ?? {}
      if (client === undefined) count(problems, `nobody has sent note ${id}`)
      else if (isCreated && id < (newest[client] ?? 0)) count(problems, `note ${id} is not in order of creation`)
      else if (isCreated) newest[client] = id
    }
  }

  /** Compares the stored notes with what was acknowledged. */
  async function compare (url: string) {
    let response: Response | undefined
    await until(async () => (response = await fetch(`${url}/api/notes`, { headers })).ok)
    compareWith(await response?.json() as Stored[], [...notes.values()])
    deepStrictEqual(problems, {})
    ok((answers[201] ?? 0) > 100, 'enough was done')
  }

  /** Waits for so many more responses with a status. */
  async function more (status: number, responses: number) {
    const enough = (answers[status] ?? 0) + responses
    await until(() => (answers[status] ?? 0) >= enough)
  }

  return { write, more, compare }
}

function count (counts: Record<string, number>, key: string | number) {
  counts[key] = (counts[key] ?? 0) + 1
}
