import { writeFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import fc from 'fast-check'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { recordSchemas } from '../support/schemas.js'
import { seedOf } from './seed.js'

/** Generated schemas, and an Ajv that compiles each of them once for all engines. */
const { seed = 5 } = seedOf()
const schemas = fc.sample(recordSchemas, { numRuns: 200, seed })
const oracle = addFormats.default(new Ajv2020({ strict: false, allErrors: true, ownProperties: true }))

onEveryEngine((t, address, engine) => {
  t.test('what Ajv accepts is stored and returned unchanged, and what it rejects is 400 and not stored', async t => {
    const perSchema = engine === 'memory' ? 5 : 1
    const file = `${newFolder(t)}/collections.json`
    writeFileSync(file, JSON.stringify(Object.fromEntries(schemas.map(({ schema }, n) => [`c${n}`, { schema, operations: ['list', 'create'] }]))))
    const app = build(t, { DATABASE_URL: address(), COLLECTIONS_FILE: file, DOCS: 'false' })
    const problems: unknown[] = []
    let accepted = 0
    for (const [n, { schema, records }] of schemas.entries()) {
      const url = `/api/c${n}`
      const stored: object[] = []
      for (const generated of fc.sample(records, { numRuns: perSchema, seed })) {
        const record = { ...JSON.parse(JSON.stringify(generated)), id: stored.length + 1 }
        const isValid = oracle.validate(schema, record)
        const { id, ...payload } = record
        const response = await app.inject({ method: 'POST', url, payload })
        const isExpected = isValid
          ? response.statusCode === 201 && isDeepStrictEqual(response.json(), record)
          : response.statusCode === 400 && response.json().errors.every(({ path }: { path: string }) => oracle.errors?.some(({ instancePath }) => path.startsWith(instancePath.slice(0, 256))))
        if (isValid) stored.push(record)
        if (!isExpected) problems.push({ schema, payload, response: response.body })
      }
      accepted += stored.length
      const list = (await app.inject(url)).json()
      if (!isDeepStrictEqual(list, stored)) problems.push({ schema, stored, list })
    }
    t.same(problems, [], `TEST_SEED=${seed}`)
    t.ok(accepted > 20 * perSchema && accepted < 180 * perSchema, `${accepted} of ${200 * perSchema} records are accepted`)
  })
})
