import { writeFileSync } from 'node:fs'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { randomCollections } from './collections.js'
import { seedOf } from './seed.js'

const { seed = 5 } = seedOf()
const random = randomCollections(120, seed)

onEveryEngine((t, address, engine) => {
  t.test('what Ajv accepts is stored and returned unchanged, and what it rejects is 400 and not stored', async t => {
    const perSchema = engine === 'memory' ? 6 : 2
    const file = `${newFolder(t)}/collections.json`
    writeFileSync(file, random.file)
    const app = build(t, { DATABASE_URL: address(), COLLECTIONS_FILE: file, DOCS: 'false' })
    const { problems, accepted, conflicts, requests } = await random.check(async (method, url, payload) => {
      const response = await app.inject({ method, url, payload })
      return { status: response.statusCode, body: response.body && response.json() }
    }, perSchema)
    t.same(problems, [], `TEST_SEED=${seed}`)
    t.ok(conflicts > 0, `${conflicts} values are used already`)
    t.ok(accepted > requests * 0.1 && accepted < requests * 0.9, `${accepted} of ${requests} records are accepted`)
  })
})
