import { isDeepStrictEqual } from 'node:util'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import fc from 'fast-check'
import { collectionNames, recordSchemas } from '../support/schemas.js'

/** Sends a request, and returns the status and the value of the body. */
type Send = (method: 'GET' | 'POST' | 'PUT', path: string, body?: object) => Promise<{ status: number, body: unknown }>

type Stored = { id: number } & Record<string, unknown>

const ajvOptions = { strict: false, allErrors: true, ownProperties: true, removeAdditional: true }

/** Collections with unusual names and random schemas, and records of which each schema accepts some. */
export function randomCollections (count: number, seed: number) {
  const ajv = addFormats.default(new Ajv2020(ajvOptions))
  const collections = fc.sample(recordSchemas, { numRuns: count, seed })
    .map((generated, n) => ({ ...generated, name: collectionNames[n] ?? `c${n}` }))
  const definitions = collections.map(({ name, schema }, n) => [name, { schema: { ...schema, title: `Record${n}` } }])
  return { file: JSON.stringify(Object.fromEntries(definitions)), check }

  /**
   * Creates and replaces records. What Ajv accepts must be stored unchanged, without unknown fields of nested objects
   * that are closed, and what it rejects must be 400. Returns what is not so, and the number of accepted records.
   */
  async function check (send: Send, perSchema: number) {
    const problems: unknown[] = []
    let accepted = 0
    for (const { name, schema, records } of collections) {
      const path = `/api/${name}`
      const stored: Stored[] = []
      for (const [n, generated] of fc.sample(records, { numRuns: perSchema, seed }).entries()) {
        const { id: _id, ...fields } = JSON.parse(JSON.stringify(generated))
        const isReplacement = n % 3 === 2 && stored.length > 0
        const record: Stored = { ...structuredClone(fields), id: isReplacement ? 1 : stored.length + 1 }
        const isValid = ajv.validate(schema, record)
        const answer = isReplacement ? await send('PUT', `${path}/1`, fields) : await send('POST', path, fields)
        const isRight = isValid
          ? answer.status === (isReplacement ? 200 : 201) && isDeepStrictEqual(answer.body, record)
          : answer.status === 400
        if (!isRight) problems.push({ name, schema, fields, ...answer })
        if (!isValid) continue
        accepted++
        stored[record.id - 1] = record
      }
      const { body: list } = await send('GET', path)
      if (!isDeepStrictEqual(list, stored)) problems.push({ name, schema, stored, list })
    }
    return { problems, share: accepted / (count * perSchema) }
  }
}
