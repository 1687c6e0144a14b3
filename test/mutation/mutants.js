// Changes to the code that a test must notice: the file, what it contains once, and what takes its place.
/* eslint no-template-curly-in-string: off */

/** The tests for each part of the code, and the engines that they need. */
const http = { engines: 'memory', tests: ['test/collections.test.ts', 'test/own-collections.test.ts', 'test/http/errors.test.ts', 'test/http/pagination-and-creation.test.ts', 'test/security/injection.test.ts', 'test/src/plugin.test.ts', 'test/src/logger.test.ts', 'test/stores/outages.test.ts', 'test/src/requests.test.ts', 'test/guards/rate-limit.test.ts'] }
const memory = { engines: 'memory', tests: ['test/stores/store.test.ts', 'test/stores/memory.test.ts', 'test/stores/records.test.ts', 'test/http/pagination-and-creation.test.ts'] }
const caching = { engines: 'memory', tests: ['test/http/caching.test.ts'] }
const databases = { engines: 'SQLite,PostgreSQL', tests: ['test/stores/store.test.ts', 'test/stores/records.test.ts', 'test/http/pagination-and-creation.test.ts', 'test/stores/databases.test.ts', 'test/stores/lists.test.ts', 'test/stores/engines.test.ts', 'test/stores/postgres.test.ts', 'test/stores/processes.test.ts'] }

const postgres = { engines: 'PostgreSQL', tests: ['test/stores/postgres.test.ts', 'test/stores/databases.test.ts', 'test/stores/store.test.ts'] }

const many = { engines: 'SQLite,PostgreSQL', tests: ['test/create-many.test.ts'] }

const unique = { engines: 'memory,SQLite,PostgreSQL', tests: ['test/unique.test.ts'] }

export const mutants = [
  // Unique fields and references
  ...inFile('plugins/stores/memory/store.ts', unique, [
    ['if (isConstrained) checkAll(given, isMany)', ''],
    [' || before?.get(name)?.has(value)', '']
  ]),
  ...inFile('plugins/stores/sqlite/connections.ts', unique, [
    ['size < Infinity ? attempt(run) : run()', 'attempt(run)']
  ]),
  ...inFile('plugins/stores/postgres/conflicts.ts', unique, [
    ['isMany ? found[n]?.at(n) : found[n]', 'found[n]'],
    ['for (const { found, value } of changed(holders)) found.set(value, position)', '']
  ]),
  // Many records at once
  ...inFile('plugins/stores/sql/table.ts', many, [
    ['isMany ? Infinity : ', ''],
    ["isMany ? `/${n}` : ''", "''"]
  ]),
  ...inFile('plugins/stores/postgres/statements.ts', many, [
    ['where _digest is not null', 'where _key is not null'],
    ['1 + ${ids.maximum} - count', '${ids.maximum}']
  ]),
  ...inFile('plugins/collection/routes.ts', many, [
    [' && !hasOwnCreate', '']
  ]),
  ...inFile('plugins/collection/handlers.ts', many, [
    ['if (addDefaults) checkSize(request, created)', '']
  ]),
  // Validation
  ...inFile('plugins/schema/validation.ts', http, [
    ['if (!isDetailed()) return', 'if (true) return'],
    ["includes('string') && { isWellFormed: true }", "includes('text') && { isWellFormed: true }"]
  ]),
  ...inFile('plugins/schema/problems.ts', http, [
    ["case 'required': return 'is required'", "case 'required': return 'is missing'"],
    ['typeNames[type] ?? `a ${type}`', '`a ${type}`'],
    ["if (keyword === 'if' || keyword === 'propertyNames') return false", ''],
    ["if ((keyword === 'const' || keyword === 'enum') &&", "if (keyword === 'const' &&"],
    ['!unions.some(union => isAlternative(error, union))', 'true'],
    ['slice(0, maxErrors)', 'slice(0)']
  ]),
  ...inFile('plugins/http/api-defaults.ts', http, [
    ['/^-?\\d+$/', '/^\\d+$/'],
    ['/^-?\\d+$/', '/-?\\d+/'],
    ['Math.min(Number(value), Number.MAX_VALUE)', 'Number(value)']
  ]),
  ...inFile('plugins/http/json-body.ts', http, [
    ["if (!isUtf8(body)) return done(invalidBody('must be UTF-8'))", ''],
    ["if (value === null && text.trim() !== 'null') return", 'if (false) return'],
    ['if (++depth > maxDepth)', 'if (false)'],
    ['if (++parts > maxParts)', 'if (false)'],
    ["route.method !== 'GET' &&", "route.method === 'DELETE' &&"]
  ]),

  // Errors
  ...inFile('plugins/http/errors.ts', http, [
    ['ERR_NOT_STORABLE: { status: 400 }', 'ERR_NOT_STORABLE: { status: 422 }'],
    ['if (status === 413) return', 'if (status === 414) return'],
    ['status === 500 ? details[500]', 'status === 500 ? message'],
    ["nameOf(problem) || 'it'", 'nameOf(problem)'],
    ["if (status === 503 || code === 'ERR_IDEMPOTENCY_KEY_IN_USE') reply.header('retry-after', 1)", ''],
    ["reply.code(status).header('x-request-id', request.id)", 'reply.code(status)'],
    ["if (!reply.hasHeader('cache-control')) reply", 'reply'],
    ['status >= 400 && status <= 599', 'status >= 400'],
    ["reply.raw.shouldKeepAlive ? 'keep-alive' : 'close'", "'close'"],
    ['reply.headers({ ...headers })', 'reply']
  ]),
  ...inFile('plugins/http/not-found.ts', http, [
    ['|| (methods.includes(request.method) && !isOptions)', ''],
    [' && !isOptions', ''],
    ['methods.length === 1 ||', ''],
    ["reply.header('allow', methods.join(', '))", '']
  ]),
  ...inFile('plugins/collection/steps.ts', http, [
    ['if (current.length > largeBody) throw largeRecord', ''],
    ['latest === current ?', 'latest ?']
  ]),
  ...inFile('plugins/collection/handlers.ts', http, [
    ["collection === '' ?", 'false ?'],
    ['`./${collection}/', '`${collection}/'],
    ["'^[!-~]{1,255}$'", "'^[!-~]{1,256}$'"],
    ['store.append(record, key)', 'store.append(record)'],
    ['reply.code(201)', 'reply.code(200)'],
    ["idSource === 'server' ? fields :", "idSource === 'client' ? fields :"],
    ["if (record.id !== id) throw invalid('body'", "if (false) throw invalid('body'"],
    ['if (value === null) delete merged[name]', 'if (value === undefined) delete merged[name]'],
    ['merged[name] = merge(merged[name], value)', 'merged[name] = value'],
    ['checkPreconditions(request, etagOf(current))\n', '\n'],
    ['refuseIf(problemsIn.bySchema(record))', '']
  ]),

  // Conditional requests and compression
  ...inFile('plugins/http/etags.ts', caching, [
    ["if (list.trim() === '*') return true", ''],
    ["return tag.replace(/^W\\//, '')", 'return tag'],
    ["if (request.method === 'HEAD') return Readable.from([])", ''],
    ["!includes(match, etag, tag => tag.startsWith('\"'))", '!includes(match, etag, () => true)'],
    ["isRead = method === 'GET' || method === 'HEAD'", "isRead = method === 'GET'"],
    ['isComparable(tag) && opaque(tag) === opaque(etag)', 'isComparable(tag)']
  ]),
  ...inFile('plugins/http/compression.ts', caching, [
    ["weights.get(name) ?? weights.get('*') ?? 0", 'weights.get(name) ?? 0'],
    [" >= (weights.get('identity') ?? 0)", ' > 0'],
    ['statusCode === 200 || statusCode === 304', 'statusCode === 200'],
    ['isRequired || Buffer.byteLength(body) >= threshold', 'isRequired'],
    ['(isRequired || Buffer.byteLength(body) >= threshold)', 'Buffer.byteLength(body) >= threshold'],
    [" || reply.hasHeader('content-encoding')", ''],
    ['if (compressed || bodies', 'if (bodies'],
    ["vary === undefined ? 'accept-encoding' : `${vary}, accept-encoding`", "'accept-encoding'"],
    ['streams--', '']
  ]),

  // Pagination
  ...inFile('plugins/collection/pagination.ts', http, [
    ['if (limit === undefined && after !== undefined) throw', 'if (false) throw'],
    ["query.set('after', next)", "query.append('after', next)"],
    ['if (next !== undefined) {', 'if (next) {'],
    ['  list.destroy()\n', '']
  ]),
  ...inFile('plugins/stores/query.ts', { engines: 'memory', tests: ['test/queries.test.ts', 'test/http/pagination-and-creation.test.ts'] }, [
    ['Number(position) >= 0', 'true'],
    ['|| cursorOf(place) !== cursor ', ''],
    ['unit + 0x2000', 'unit'],
    ['if (one === undefined) return -1', 'if (one === undefined) return 1'],
    ['last === 0xd7ff ? 0xe000 : last + 1', 'last + 1'],
    ['while (points.at(-1) === 0x10ffff) points.pop()', '']
  ]),
  ...inFile('plugins/stores/memory/indexes.ts', { engines: 'memory', tests: ['test/queries.test.ts'] }, [
    ['position: place.position + 0.5', 'position: place.position'],
    ['descending ? entries.reverse() : entries', 'entries']
  ]),
  ...inFile('plugins/stores/memory/indexes.ts', memory, [
    ['if (next && !record) othersById.change(next, 1)', ''],
    ['if (firstById.get(entry.id)) othersById.change(entry, 0, entry)', 'if (firstById.get(entry.id)) void 0'],
    ['else firstById.delete(first.id)', '']
  ]),
  ...inFile('plugins/stores/memory/sorted-index.ts', memory, [
    ['chunks.splice(n, 1, ...split', 'chunks.splice(n, 0, ...split'],
    ['chunk.reads < reads ? [...chunk.entries] : chunk.entries', 'chunk.entries'],
    ['removed > 0 ? [n, n - 1] : []', '[]'],
    ['entries.length > 0 ? [chunk] : []', '[chunk]'],
    ['n === last ? end : Infinity', 'Infinity'],
    ['size <= maxSize && ', '']
  ]),
  ...inFile('plugins/stores/memory/lists.ts', memory, [
    ['found.length > limit ? given.at(-1)', 'found.length >= limit ? given.at(-1)']
  ]),
  ...inFile('plugins/stores/sql/lists.ts', databases, [
    ['const last = rows.length > size ?', 'const last = rows.length >= size ?'],
    ['isEnd = rows.length < count', 'isEnd = rows.length <= count'],
    [".on('close', free)", '']
  ]),
  ...inFile('plugins/stores/sql/table.ts', databases, [
    ["if (value.includes('\\0')) throw", 'if (false) throw'],
    ["if (type === 'json') return JSON.stringify(value)", "if (type === 'json' && value !== null) return JSON.stringify(value)"]
  ]),
  ...inFile('plugins/stores/sql/migrations.ts', { ...databases, tests: ['test/stores/databases.test.ts', 'test/stores/migrations.test.ts'] }, [
    ['if (version > newest) throw', 'if (version > newest + 1) throw'],
    ['upgrades.slice(version - 1)', 'upgrades.slice(version)'],
    ['if (problems.length > 0) throw', 'if (false) throw'],
    ["value !== null || from === 'json'", 'true'],
    ['if (isChanged) await run(`update collection_changes', 'if (false) await run(`update collection_changes']
  ]),

  // Stores
  ...inFile('plugins/stores/memory/store.ts', memory, [
    ['record.id <= maxCountedId', 'true'],
    ['whole.changes < changes', 'whole.changes < 0']
  ]),
  ...inFile('plugins/stores/sqlite/connections.ts', databases, [
    ["connection.exec('begin immediate')", "connection.exec('begin')"],
    ["if (connection.isTransaction) connection.exec('rollback')", ''],
    ['if (kindOf(error)) throw error', ''],
    ["reader.prepare('select 1 from file.sqlite_schema').get()", '']
  ]),
  ...inFile('plugins/stores/sqlite/file.ts', databases, [
    [' ${inodeOf(`${path}-shm`)}', '']
  ]),
  ...inFile('plugins/stores/sqlite/engine.ts', databases, [
    ['where id = ? order by position limit 1`', 'where id = ? order by position desc limit 1`'],
    ['prepared(statements.keepLastId).run(firstId + records.length - 1)', 'void 0'],
    ['and key = ? and at >= ?`', 'and key = ? and ? < 0`']
  ]),
  ...inFile('plugins/stores/postgres/tables.ts', databases, [
    ['if counted = 0 then', 'if false then']
  ]),
  ...inFile('plugins/stores/postgres/changes.ts', databases, [
    ['if (outcomes[n] === again) delayed.add(id)', '']
  ]),
  ...inFile('plugins/stores/postgres/statements.ts', databases, [
    ['order by position limit 1) as found', 'order by position desc limit 1) as found'],
    ['_lock as materialized (select ${lock(name, timeout)})', '_lock as materialized (select 1)'],
    ['and t.xmin::text = _given._version', ''],
    ['for no key update of t skip locked', 'for no key update of t'],
    ["where clock_timestamp() < now() + ${timeLeft} * interval '1 millisecond'", ''],
    ['(select max("id") from _numbered where ${insertedOnly})', '(select max("id") from _numbered)'],
    ['lock table ${names} in row exclusive mode;', '']
  ]),
  ...inFile('plugins/stores/postgres/errors.ts', databases, [
    ['/^(22|23(?!502)|44|54|[6-9I-WYZ])/', '/^(22|44|54|[6-9I-WYZ])/']
  ]),
  ...inFile('plugins/stores/postgres/pools.ts', postgres, [
    ['if (current.has(client)) current = new WeakSet()', ''],
    ["codeOf(error) !== '53300'", "codeOf(error) === '53300'"],
    ['onConnect: rejectReadOnly', 'onConnect () {}'],
    ['(await other.connect()).release(true)', '(await other.connect()).release()']
  ]),
  ...inFile('plugins/stores/postgres/connections.ts', postgres, [
    ['isolation level repeatable read', 'isolation level read committed'],
    ['run(config, cancelIfWaiting, deadline)', 'run(config, () => {}, deadline)'],
    ['limited(Math.ceil(pools.queries.options.max / 2), timeout)', 'limited(Infinity, timeout)'],
    ['|(08|25|26|28|3D|40|53|55|57|58)...', '|(?!22|23|42|44|54|P0|XX).....']
  ]),
  ...inFile('plugins/stores/batch.ts', databases, [
    ['if (outcome instanceof Failure) call.reject(outcome.reason)\n        else if', 'if'],
    ['if (isPaused) repeat(call)\n      else group', 'group'],
    ['idle++\n', '\n'],
    ['group.concat(waiting.splice(0))', 'group'],
    ['if (entries.length === 1) return', 'return']
  ]),

  // Idempotency
  ...inFile('plugins/stores/idempotency.ts', memory, [
    ['use && use.digest !== digest', 'use && use.digest === digest'],
    ['use.at >= expiredBefore()', 'use.at >= 0'],
    ['if (uses.size > mostInMemory) uses.delete(oldest)', ''],
    ['24 * 60 * 60 * 1000', '23 * 60 * 60 * 1000']
  ]),
  ...inFile('plugins/stores/idempotency.ts', databases, [
    ['if (other?.digest === digest) return other.call', ''],
    ['inUse.delete(key)', '']
  ])
]

function inFile (file, where, changes) {
  return changes.map(([before, after]) => ({ file, ...where, before, after }))
}
