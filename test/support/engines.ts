import { test, type Test } from 'tap'
import { newFolder } from './folder.js'
import { sharedPostgres } from './postgres.js'

/** Returns the address of an empty database. */
type Address = () => string

const engines: Record<string, (t: Test) => Promise<Address | undefined>> = {
  memory: async () => () => 'memory',
  SQLite: async t => {
    const folder = newFolder(t)
    let files = 0
    return () => `sqlite:${folder}/${files++}.db`
  },
  PostgreSQL: async t => {
    const server = await sharedPostgres(t)
    return server?.database
  }
}

/** `ENGINES=memory` selects the engines, separated by commas. */
const wanted = process.env.ENGINES?.split(',') ?? Object.keys(engines)

/** Runs the same tests on every engine. */
export function onEveryEngine (tests: (t: Test, address: Address, engine: string) => void) {
  for (const [engine, start] of Object.entries(engines).filter(([engine]) => wanted.includes(engine))) {
    test(`on ${engine}`, async t => {
      const address = await start(t)
      if (address) tests(t, address, engine)
      else t.pass('the same tests', { skip: `${engine} does not start` })
    })
  }
}
