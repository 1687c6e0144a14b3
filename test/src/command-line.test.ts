import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { test } from 'tap'
import { Config } from '../../schemas/config.js'
import { readCommandLine } from '../../src/command-line.js'
import { misspelled, readConfig, storageOf } from '../../src/read-config.js'
import { checkedFetch as fetch } from '../support/document.js'
import { newFolder } from '../support/folder.js'
import { start } from '../support/process.js'

test('an invalid configuration ends the process with one message that lists all problems', async t => {
  const server = start(t, {
    HOST: '',
    PORT: '80x',
    LOG_LEVEL: 'loud',
    API_PREFIX: 'api/',
    DATABASE_URL: 'mysql://ada:sesame@db/items',
    DATABASE_POOL_SIZE: '1',
    BODY_LIMIT: '0',
    DOCS: 'yes'
  })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), [
    'Invalid configuration:',
    '  HOST must not be empty',
    '  PORT must be an integer, not "80x"',
    '  LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent, not "loud"',
    '  API_PREFIX must be a path such as /api, or several paths separated by commas',
    '  DATABASE_URL must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE',
    '  DATABASE_POOL_SIZE must be at least 2, not 1',
    '  BODY_LIMIT must be at least 1, not 0',
    '  DOCS must be true or false, not "yes"',
    ''
  ].join('\n'))
})

test('--help shows the options, all variables with their defaults and units, and examples', async t => {
  const server = start(t, { PORT: 'invalid' }, { args: ['--help'] })
  t.same(await server.exit, [0, null])
  t.equal(server.errors(), '')
  const help = server.output()
  t.match(help, /^Usage: fastify-items-users \[options\]\n/)
  for (const option of [
    '--host HOST', '--port PORT', '--database DATABASE_URL', '--collections COLLECTIONS_FILE', '-h, --help',
    '-v, --version'
  ]) {
    t.match(help, `\n  ${option} `)
  }
  const words = help.replaceAll(/\s+/g, ' ')
  for (const [name, { default: value, description }] of Object.entries(Config.properties)) {
    t.match(words, ` ${name} ${String(description).replaceAll('`', '')}${value === undefined ? '' : ' ('}`)
    if (value !== undefined) t.match(words, `default: ${value})`)
  }
  t.match(words, 'Maximum time for the database operations of a request, in milliseconds (default: 5000)')
  t.match(words, '(one of client, server; default: client)')
  t.match(help, /\nExamples:\n {2}fastify-items-users --port 8080\n/)
  t.ok(help.split('\n').every(line => line.length <= 80))
  t.same(readCommandLine(['-h']), { text: help.trimEnd() })
})

test('--version shows the version of the package', async t => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  for (const option of ['--version', '-v']) t.same(readCommandLine([option]), { text: version })
  const server = start(t, {}, { args: ['--version'] })
  await server.exit
  t.equal(server.output(), `${version}\n`)
})

test('--host, --port and --database override the environment, and an .env file sets variables', async t => {
  const folder = newFolder(t)
  writeFileSync(
    `${folder}/.env`,
    'HOST=192.0.2.1\nPORT=1\nDATABASE_URL=memory\nAPI_PREFIX=/v2\nDOCS=false # no pages\n'
  )
  const server = start(t, { PORT: undefined }, {
    flags: [`--env-file=${folder}/.env`],
    args: ['--host', '127.0.0.1', '--port=0', '--database', `sqlite:${folder}/items.db`]
  })
  t.equal((await fetch(`${await server.url}/v2/items`)).status, 200)
  t.ok(existsSync(`${folder}/items.db`))
  t.match(server.output(), `. Storage: sqlite:${folder}/items.db"`)
  t.same(readCommandLine([]), { set: {} })
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
})

test('an invalid option ends the process with one line that says what to do', async t => {
  const server = start(t, {}, { args: ['--prot', '80'] })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(
    server.errors(),
    "Unknown option '--prot'. The options are --host, --port, --database, --collections, --help, --version.\n"
  )
  for (const [args, message] of [
    [['--log-level=debug'], "Unknown option '--log-level'. Set the environment variable LOG_LEVEL instead."],
    [['--port'], "Option '--port <value>' argument missing. The options are"],
    [['--port', '--host', 'x'], "Option '--port' argument is ambiguous. The options are"],
    [['--help=yes'], "Option '-h, --help' does not take an argument. The options are"],
    [['-1'], "Unknown option '-1'. The options are"],
    [['8080'], "Unexpected argument '8080'. The options are"]
  ] as const) {
    t.throws(() => readCommandLine([...args]), { message })
  }
  for (const [args, message] of [
    [['--port=-1'], '--port must be at least 0, not -1'],
    [['--port', '80x', '--host', ''], '--host must not be empty\n  --port must be an integer, not "80x"'],
    [
      ['--database', 'mysql://ada:sesame@db'],
      '--database must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE'
    ]
  ] as const) {
    t.throws(() => readConfig({}, readCommandLine([...args]).set), { message: `Invalid configuration:\n  ${message}` })
  }
})

test('the start line names the host of PostgreSQL without user and password', async t => {
  for (const [address, host] of [
    ['postgres://ada:sesame@db:5433/shop?password=sesame', ' at db:5433'],
    ['postgresql://ada:se@same@db', ' at db'],
    ['postgres://[::1]/shop', ' at [::1]'],
    ['postgres://ada:sesame@/shop?host=/run', '']
  ]) t.equal(storageOf(readConfig({ DATABASE_URL: address })), `PostgreSQL${host}`)
})

test('a variable that looks like a misspelled one is logged', async t => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, '{"items":null,"users":null}')
  const server = start(t, {
    DATABSE_URL: 'sqlite:x',
    port: '1',
    COLLECTIONS_FILE: file,
    COLLECTION_FILE: 'x',
    HOSTS: 'x',
    HOST: '127.0.0.1'
  })
  await server.url
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
  const lines = server.output().trim().split('\n').map(line => JSON.parse(line))
  t.same(
    lines.filter(({ level }) => level === 40).map(({ msg }) => msg),
    ['There is no variable DATABSE_URL. Did you mean DATABASE_URL?']
  )
  t.match(lines[1].msg, '. Collections: none. Storage: memory')
  t.same(misspelled({ port: '1' }), ['There is no variable port. Did you mean PORT?'])
  t.same(misspelled({ HOME: '/', PATH: '/bin', HOSTNAME: 'x', SHELL: 'x', TERM: 'x', USER: 'x', LANG: 'x' }), [])
})
