// Changes to the code that a test must notice: the file, what it contains once, and what takes its place.
/* eslint no-template-curly-in-string: off */

/** The tests for each part of the code, and the engines that they need. */
const http = { engines: 'memory', tests: ['test/collections.test.ts', 'test/http/errors.test.ts', 'test/http/pagination-and-creation.test.ts', 'test/security/injection.test.ts', 'test/src/plugin.test.ts', 'test/src/logger.test.ts', 'test/stores/outages.test.ts', 'test/src/requests.test.ts'] }
const memory = { engines: 'memory', tests: ['test/stores/store.test.ts', 'test/stores/memory.test.ts', 'test/stores/records.test.ts', 'test/http/pagination-and-creation.test.ts'] }
const caching = { engines: 'memory', tests: ['test/http/caching.test.ts'] }
const databases = { engines: 'SQLite,PostgreSQL', tests: ['test/stores/store.test.ts', 'test/stores/records.test.ts', 'test/http/pagination-and-creation.test.ts', 'test/stores/databases.test.ts', 'test/stores/lists.test.ts', 'test/stores/engines.test.ts', 'test/stores/postgres.test.ts'] }

export const mutants = [
  // Validation
  ...inFile('plugins/http/faults.ts', http, [
    ["case 'required': return 'is required'", "case 'required': return 'is missing'"],
    ['?? `a ${params.type}`', '?? `an ${params.type}`'],
    ["keyword === 'required' ?", "keyword === 'type' ?"]
  ]),
  ...inFile('plugins/http/validation.ts', http, [
    ['allErrors: true', 'allErrors: false'],
    ["removeAdditional: 'all'", 'removeAdditional: false'],
    ['coerceTypes: false', 'coerceTypes: true'],
    ['/^-?\\d+$/', '/^\\d+$/'],
    ['/^-?\\d+$/', '/-?\\d+/'],
    ['return check(pick(data, names))', 'return check(data)'],
    ['Math.min(Number(text), Number.MAX_VALUE)', 'Number(text)'],
    ['JSON.stringify([schema, shared])', 'JSON.stringify(schema)']
  ]),
  ...inFile('plugins/http/json-body.ts', http, [
    ["getDefaultJsonParser('error', 'error')", "getDefaultJsonParser('remove', 'error')"],
    ["getDefaultJsonParser('error', 'error')", "getDefaultJsonParser('error', 'ignore')"],
    ['if (!isUtf8(body))', 'if (isUtf8(body))'],
    ['if (!isUtf8(body))', 'if (body.length === 1)'],
    ["route.method !== 'GET' &&", "route.method === 'DELETE' &&"]
  ]),

  // Errors
  ...inFile('plugins/http/errors.ts', http, [
    ['ERR_NOT_STORABLE: { status: 400 }', 'ERR_NOT_STORABLE: { status: 422 }'],
    ['if (status === 413) return', 'if (status === 414) return'],
    ['status === 500 ? details[500]', 'status === 500 ? message'],
    ["path.slice(1) || 'it'", 'path.slice(1)'],
    ["if (status === 503) reply.header('retry-after', 1)", ''],
    ["reply.code(status).header('x-request-id', request.id)", 'reply.code(status)'],
    ["if (!reply.hasHeader('cache-control')) reply", 'reply'],
    ['return status >= 400 && status <= 599', 'return status >= 400'],
    ['keepConnection(reply)\n', '\n'],
    ['reply.headers({ ...headers })', 'reply']
  ]),
  ...inFile('plugins/http/not-found.ts', http, [
    ['|| (methods.includes(request.method) && !isOptions)', ''],
    [' && !isOptions', ''],
    ['methods.length === 1 ||', ''],
    ["reply.header('allow', methods.join(', '))", '']
  ]),
  ...inFile('plugins/http/paths.ts', http, [
    ["collection === '' ?", 'false ?'],
    ['`./${collection}/', '`${collection}/']
  ]),

  // Conditional requests and compression
  ...inFile('plugins/http/etags.ts', caching, [
    [" || given.trim() === '*'", ''],
    [".replaceAll('W/', '')", ''],
    ["if (request.method === 'HEAD') return Readable.from([])", ''],
    ['current ?? etag)', 'etag)'],
    ['two = Math.imul(two ^ code, 0x85ebca6b)', 'two = 0'],
    ['one = Math.imul(one ^ code, 0x01000193)', 'one = 0']
  ]),
  ...inFile('plugins/http/content-coding.ts', caching, [
    ['`${etag.slice(0, -1)}-${name}"`', 'etag'],
    ["weights.get(name) ?? weights.get('*') ?? 0", 'weights.get(name) ?? 0'],
    [" >= (weights.get('identity') ?? 0)", ' > 0']
  ]),
  ...inFile('plugins/http/compression.ts', caching, [
    ['statusCode === 200 || statusCode === 304', 'statusCode === 200'],
    ['< threshold', '< 0'],
    [' && !refusesIdentity(request)', ''],
    [" || reply.hasHeader('content-encoding')", ''],
    ['byCoding?.get(coding) ??', ''],
    ['start = end, end += pieceSize', 'start = end + 1, end += pieceSize'],
    ['vary === undefined ? name : `${vary}, ${name}`', 'name'],
    ['context.runInAsyncScope(this._read, this, 0)', 'this._read(0)']
  ]),

  // Pagination
  ...inFile('plugins/http/pagination.ts', http, [
    ['if (limit === undefined && after !== undefined) throw', 'if (false) throw'],
    ['position >= 0', 'position > 1'],
    [' && cursor === cursorTo(position)', ''],
    ["query.set('after', cursorTo(next))", "query.append('after', cursorTo(next))"],
    ['if (next !== undefined) {', 'if (next) {'],
    ['if (body instanceof Readable) body.destroy()', '']
  ]),
  ...inFile('plugins/stores/segments.ts', memory, [
    ['isMore = records.length === limit', 'isMore = records.length > limit'],
    ['firstFrom(positions, after + 1)', 'firstFrom(positions, after)'],
    ['if (isShared || capacity < bytes.length)', 'if (capacity < bytes.length)'],
    ['segment.isShared = true', 'segment.isShared = false'],
    ['mergeSmall(index - 1)', ''],
    ['if (segment.ends.length === 0) replace(index, 1)', '']
  ]),
  ...inFile('plugins/stores/sql-table.ts', databases, [
    ['const isMore = rows.length > size', 'const isMore = rows.length >= size'],
    ['last = rows.length < limit', 'last = rows.length <= limit'],
    ["if (value.includes('\\0')) throw", 'if (false) throw'],
    ["if (type === 'json') return JSON.stringify(value)", "if (type === 'json' && value !== null) return JSON.stringify(value)"],
    ['if (version > newest) {', 'if (version > newest + 1) {'],
    ['upgrades.slice(version - 1)', 'upgrades.slice(version)'],
    ['clearTimeout(stalled)\n          snapshot.free()', 'clearTimeout(stalled)']
  ]),

  // Stores
  ...inFile('plugins/stores/memory.ts', memory, [
    ['nextAfter.set(lastById.get(id) ?? first, position)', 'nextAfter.set(first, position)'],
    ['id <= maxCountedId', 'true'],
    ['lastById.delete(id)', ''],
    ['nextAfter.delete(position)', ''],
    ['size--', ''],
    ['if (position === undefined) return false', 'if (!position) return true']
  ]),
  ...inFile('plugins/stores/sqlite.ts', databases, [
    ["database.exec('begin immediate')", "database.exec('begin')"],
    ["if (database.isTransaction) database.exec('rollback')", ''],
    ['where id = ? order by position limit 1)`)', 'where id = ? order by position desc limit 1)`)'],
    ['if (!hasId(given)) statements.keepLastId.run(record.id)', ''],
    ['if (database.isTransaction) statements.releaseKey.run(key)', ''],
    ['if (inodeOf(path) !== inode) throw', 'if (inode === undefined) throw'],
    ['return isOutage(error) ? new StoreUnavailableError(error) : error', 'return error'],
    ['reader.prepare(`select 1 from ${table} limit 1`).get()', '']
  ]),
  ...inFile('plugins/stores/postgres.ts', databases, [
    ['order by position limit 1) as found', 'order by position desc limit 1) as found'],
    ['isolation level repeatable read', 'isolation level read committed'],
    ['with _lock as materialized (select ${lock(name, timeout)}),', 'with _lock as materialized (select 1),'],
    ['select ${lock(name, timeout)}; ${deletion(ids)}', '${deletion(ids)}'],
    ['if (isOutOfDate(error)) retire(used)', ''],
    ['onConnect: rejectReadOnly', 'onConnect () {}'],
    ["codeOf(error) !== '53300'", "codeOf(error) === '53300'"],
    ['if (inserts.length === 1) return', 'if (inserts.length > 0) return']
  ]),
  ...inFile('plugins/stores/postgres-errors.ts', databases, [
    ['/^(22|23|44|54|P0)/', '/^(22|44|54|P0)/']
  ]),
  ...inFile('plugins/stores/postgres.ts', { engines: 'PostgreSQL', tests: ['test/stores/postgres.test.ts'] }, [
    ['using _lock where', 'where'],
    ['await client.query(probe)', ''],
    ['endWhenUnused(used).catch', 'endOf(used).catch'],
    ['(await other.connect()).release(true)', '(await other.connect()).release()']
  ]),
  ...inFile('plugins/stores/batch.ts', databases, [
    ['if (outcome instanceof Error) reject(outcome)\n        else resolve', 'resolve'],
    ['idle++\n', '\n'],
    ['group.concat(waiting.splice(0))', 'group']
  ]),

  // Idempotency
  ...inFile('plugins/stores/idempotency.ts', memory, [
    ['use && use.digest !== digest', 'use && use.digest === digest'],
    ['use.at >= expiredBefore()', 'use.at >= 0'],
    ['if (uses.size <= mostInMemory) break', 'break'],
    ['24 * 60 * 60 * 1000', '23 * 60 * 60 * 1000']
  ]),
  ...inFile('plugins/stores/idempotency.ts', databases, [
    ['if (inUse.has(key)) throw', 'if (inUse.size > 100) throw'],
    ['inUse.delete(key)', '']
  ]),
  ...inFile('plugins/http/create-record.ts', http, [
    ["'^[!-~]{1,255}$'", "'^[!-~]{1,256}$'"],
    ['store.append(record, key)', 'store.append(record)'],
    ['reply.code(201)', 'reply.code(200)']
  ])
]

function inFile (file, where, changes) {
  return changes.map(([before, after]) => ({ file, ...where, before, after }))
}
