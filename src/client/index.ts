import type { Problem } from '../../schemas/errors.js'
import type { Item } from '../../schemas/item.js'
import type { Sort, Where } from '../../schemas/query.js'
import type { User } from '../../schemas/user.js'
export type { Item, Problem, User }

export interface ClientOptions {
  /** Bearer token, or a function that returns it. The function is called before each request. After a 401, it is called again, and another token is tried once. */
  token?: string | (() => string | Promise<string>) | undefined
  /** Headers of every request. */
  headers?: RequestInit['headers'] | undefined
  /** Maximum number of retries of a request. Default: 4. */
  retries?: number | undefined
  /** A function to use instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch | undefined
  /** Keeps the responses to GET requests, so that the service sends them again only if they have changed. */
  cache?: Map<string, Cached> | undefined
}

export interface Cached {
  etag: string
  text: string
  link: string | null
}

export interface RequestOptions {
  /** Aborts the request and its retries. */
  signal?: AbortSignal | undefined
}

export interface ChangeOptions extends RequestOptions {
  /** The ETag that the record must have, such as `etag(record)`. If the record has changed, the `ApiError` has the status 412. */
  ifMatch?: string | undefined
}

export interface ListOptions<T> extends RequestOptions {
  /** Conditions on the fields in `filters` of the collection, such as `{ status: 'open', 'price.gte': 10, id: [1, 2] }`. */
  where?: Where<T> | undefined
  /** The field to order by, after `-` in descending order. Default: in order of creation. */
  sort?: Sort<T> | undefined
  /** Number of records per request, 1 to 1000. Default: 100. */
  pageSize?: number | undefined
}

export interface PageOptions<T> extends ListOptions<T> {
  /** `next` of the previous page. Default: the first page. */
  after?: string | undefined
}

export interface Page<T> {
  records: T[]
  /** The cursor of the next page, if there are more records. */
  next: string | undefined
}

/** The operations of a collection, as far as the service has them. */
export interface Collection<T extends { id: number }> {
  /** Iterates over records, and requests them page by page. */
  list (options?: ListOptions<T>): AsyncGenerator<T, void, undefined>
  /** Returns one page of records, and the cursor of the next one. */
  page (options?: PageOptions<T>): Promise<Page<T>>
  /** Returns the number of records that match, if the collection has `filters`. */
  count (options?: Pick<ListOptions<T>, 'where' | 'signal'>): Promise<number>
  /** Returns the first record with this id. */
  get (id: number, options?: RequestOptions): Promise<T>
  /** Creates a record, without an `id` if the service generates it. Retries create nothing more. */
  create (record: Omit<T, 'id'> & { id?: number }, options?: RequestOptions): Promise<T>
  /** Creates 1 to 1000 records, all of them or none. Retries create nothing more. */
  createMany (records: readonly (Omit<T, 'id'> & { id?: number })[], options?: RequestOptions): Promise<T[]>
  /** Replaces the first record with this id. */
  replace (id: number, record: Omit<T, 'id'>, options?: ChangeOptions): Promise<T>
  /** Changes some fields of the first record with this id. `null` removes an optional one. */
  update (id: number, patch: MergePatch<T>, options?: ChangeOptions): Promise<T>
  /** Deletes the first record with this id. */
  delete (id: number, options?: ChangeOptions): Promise<void>
}

/** A JSON Merge Patch (RFC 7396). */
export type MergePatch<T> = T extends unknown[] ? T : T extends object ? { [K in keyof T]?: MergePatch<T[K]> | (undefined extends T[K] ? null : never) } : T

/** An error response of the service. `errors` are the problems of a 400, or the field of a 409; `requestId` is also in the log of the service. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly code: `ERR_HTTP_${number}`

  constructor (readonly status: number, readonly detail: string, readonly errors: Problem[], readonly requestId: string | null) {
    super(`${status} ${detail}`)
    this.code = `ERR_HTTP_${status}`
  }
}

/** ETags of the records that the service has sent. */
const etags = new WeakMap<object, string>()

/** Returns the ETag of a record that `get`, `replace` or `update` has returned, for `ifMatch`. */
export function etag (record: object) {
  const value = etags.get(record)
  if (!value) throw new TypeError('The record has no ETag. Use a record that get, replace or update has returned')
  return value
}

/** A longer `Retry-After`, in seconds, is not waited for. */
const maxRetryAfter = 60

/** Creates a client of the service with a base URL such as `http://127.0.0.1:3000/api`. */
export function createClient (baseUrl: string, { token, headers, retries = 4, fetch, cache }: ClientOptions = {}) {
  const currentToken = typeof token === 'function' ? token : () => token
  const base = baseUrl.endsWith('/') ? baseUrl.slice(0, -1) : baseUrl
  const items: Pick<Collection<Item>, 'list' | 'page' | 'get' | 'create'> = collection('items')
  const users: Pick<Collection<User>, 'list' | 'page' | 'get' | 'create' | 'delete'> = collection('users')
  return { items, users, collection }

  /** The operations of a collection of your own, such as `collection<Order>('orders')`. */
  function collection<T extends { id: number }> (name: string): Collection<T> {
    async function page ({ where, sort, pageSize = 100, after, signal }: PageOptions<T> = {}): Promise<Page<T>> {
      const { data, link } = await request<T[]>('GET', `${name}?${queryOf({ ...where, sort, limit: pageSize, after })}`, { signal })
      return { records: data, next: new URLSearchParams(/\?([^>]*)/.exec(link ?? '')?.[1]).get('after') ?? undefined }
    }
    return {
      async * list (options) {
        let part: Page<T> | undefined
        do {
          part = await page({ ...options, after: part?.next })
          yield * part.records
        } while (part.next !== undefined)
      },
      page,
      count: async ({ where, signal } = {}) => Number((await request('HEAD', `${name}?${queryOf({ ...where, limit: 1, total: true })}`, { signal })).total || NaN),
      get: async (id, options) => (await request<T>('GET', `${name}/${id}`, options)).data,
      create: async (record, options) => (await request<T>('POST', name, options, record)).data,
      createMany: async (records, options) => (await request<T[]>('POST', `${name}/batch`, options, records)).data,
      replace: async (id, record, options) => (await request<T>('PUT', `${name}/${id}`, options, record)).data,
      update: async (id, patch, options) => (await request<T>('PATCH', `${name}/${id}`, options, patch)).data,
      delete: async (id, options) => (await request<undefined>('DELETE', `${name}/${id}`, options)).data
    }
  }

  async function request<T> (method: Method, path: string, { signal, ifMatch }: ChangeOptions = {}, record?: object) {
    const init = { method, signal, headers: new Headers(headers), body: JSON.stringify(record) }
    if (record) init.headers.set('content-type', method === 'PATCH' ? 'application/merge-patch+json' : 'application/json')
    // A key begins with the time, as a UUIDv7 does, because databases store such keys faster. (Pages without HTTPS have no `randomUUID`.)
    if (method === 'POST') init.headers.set('idempotency-key', `${Date.now()}-${crypto.getRandomValues(new BigUint64Array(2)).join('-')}`)
    if (ifMatch !== undefined) init.headers.set('if-match', ifMatch)
    const first = await currentToken()
    try {
      return await send<T>(path, init, first)
    } catch (error) {
      const second = error instanceof ApiError && error.status === 401 ? await currentToken() : first
      if (second === first) throw error
      return send<T>(path, init, second)
    }
  }

  /** Sends a request, and repeats it if it failed for a reason that passes. */
  async function send<T> (path: string, init: Init, bearer?: string, attempt = 1): Promise<Answer<T>> {
    const { method, signal, headers } = init
    const url = `${base}/${path}`
    const stored = method === 'GET' ? cache?.get(url) : undefined
    if (bearer) headers.set('authorization', `Bearer ${bearer}`)
    if (stored) headers.set('if-none-match', stored.etag)
    else headers.delete('if-none-match') // of an earlier attempt
    let retryAfter = 0
    try {
      const response = await (fetch ?? globalThis.fetch)(url, init)
      const known = response.status === 304 ? stored : undefined
      const { text, link } = known ?? { text: await response.text(), link: response.headers.get('link') }
      const data = parse(text)
      const etag = response.headers.get('etag')
      if (known || response.status === 204 || (response.ok && (data instanceof Object || method === 'HEAD'))) {
        if (etag && data) etags.set(data, etag)
        if (etag && method === 'GET') cache?.set(url, { etag, text, link })
        return { data, link, total: response.headers.get('x-total-count') }
      }
      const detail = data?.detail ?? (response.ok ? 'The response is not JSON' : response.statusText)
      retryAfter = Number(response.headers.get('retry-after')) || 0
      throw new ApiError(response.status, detail, data?.errors ?? [], response.headers.get('x-request-id'))
    } catch (error) {
      // An invalid URL is invalid in every attempt.
      if (!fetch && !URL.canParse(url, Object(Object(globalThis).location).href)) throw error
      if (signal?.aborted || attempt > retries || retryAfter > maxRetryAfter || !passes(method, error, retryAfter)) throw error
    }
    await pause(retryAfter * 1000 + Math.random() * Math.min(100 * 2 ** attempt, 30_000), signal)
    return send(path, init, bearer, attempt + 1)
  }
}

type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
type Init = RequestInit & { method: Method, headers: Headers, signal?: AbortSignal }
type Answer<T> = { data: T, link: string | null, total: string | null }

/** A query string. A parameter with several values is repeated, and one without a value is left out. */
function queryOf (parameters: Record<string, unknown>) {
  const entries = Object.entries(parameters).flatMap(([name, value]) => [value].flat().filter(value => value !== undefined).map((value): [string, string] => [name, String(value)]))
  return new URLSearchParams(entries)
}

/** Returns what a text means as JSON; `undefined` if it is not JSON, as in the error responses of proxies. */
function parse (text: string) {
  try {
    return JSON.parse(text)
  } catch {}
}

/**
 * Returns whether a request can be repeated: after a network error, 429, 503, or 409 with `Retry-After`, which says that the
 * previous attempt is in progress. Another 409 is a conflict with other records. A DELETE is repeated only after 429, because a repeated one would delete the next record with the same id;
 * a PUT or PATCH too, because a repeated one could undo the change of another client.
 */
function passes (method: Method, error: unknown, retryAfter: number) {
  const status = error instanceof ApiError ? error.status : 0
  if (status === 409 && retryAfter === 0) return false
  return (['GET', 'HEAD', 'POST'].includes(method) ? [0, 409, 429, 503] : [429]).includes(status)
}

function pause (milliseconds: number, signal?: AbortSignal) {
  return new Promise<void>((resolve, reject) => {
    const timer = setTimeout(end, milliseconds)
    signal?.addEventListener('abort', end)
    function end () {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      signal?.aborted ? reject(signal.reason) : resolve()
    }
  })
}
