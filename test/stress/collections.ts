import { isDeepStrictEqual } from 'node:util'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import fc from 'fast-check'
import { fieldsOf } from '../../plugins/stores/indexed-fields.js'
import { pointer } from '../../schemas/error-body.js'
import { collectionNames, recordSchemas } from '../support/schemas.js'

/** Sends a request, and returns the status and the value of the body. */
type Send = (method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, body?: object) => Promise<{ status: number, body: unknown }>

type Stored = { id: number } & Record<string, unknown>

/** Generates collections with unusual names and random schemas, and an Ajv that compiles each schema once. */
export function randomCollections (count: number, seed: number) {
  const schemas = fc.sample(recordSchemas, { numRuns: count, seed }).map((generated, n) => {
    const scalars = fieldsOf(generated.schema as never).filter(({ name, type }) => type && name !== 'id')
    return { ...generated, name: collectionNames[n] ?? `c${n}`, unique: n % 2 ? scalars.map(({ name }) => name) : [] }
  })
  const ajv = addFormats.default(new Ajv2020({ strict: false, allErrors: true, ownProperties: true, removeAdditional: true }))

  return {
    /** The content of a file for COLLECTIONS_FILE. */
    file: JSON.stringify(Object.fromEntries(schemas.map(({ name, schema, unique }, n) => [name, { schema: { ...schema, title: `Record${n}` }, unique }]))),

    /**
     * Creates records one by one and two at once, and replaces and deletes records. What Ajv accepts must be stored unchanged,
     * without unknown fields of nested objects that are closed, and what it rejects must be 400. A value of a unique field that is used is 409.
     */
    async check (send: Send, perSchema: number) {
      const problems: unknown[] = []
      let accepted = 0
      let conflicts = 0
      for (const { name, schema, records, unique } of schemas) {
        const path = `/api/${name}`
        const stored: Stored[] = []
        let nextId = 1
        const samples = fc.sample(records, { numRuns: perSchema, seed })
        for (const [n, generated] of (unique.length > 0 ? [...samples, ...samples] : samples).entries()) {
          const first = stored[0]
          const isReplacement = n % 3 === 2 && first !== undefined
          const { id: _id, ...fields } = JSON.parse(JSON.stringify(generated))
          const record: Stored = { ...structuredClone(fields), id: isReplacement ? first.id : nextId }
          const isValid = ajv.validate(schema, record)
          const isMany = n % 3 === 1
          const created = isMany ? [record, { ...record, id: nextId + 1 }] : [record]
          const { status, body } = isReplacement
            ? await send('PUT', `${path}/${first.id}`, fields)
            : isMany ? await send('POST', `${path}/batch`, [fields, fields]) : await send('POST', path, fields)
          // Two equal records conflict with each other.
          const used = unique.filter(field => (record[field] ?? undefined) !== undefined && (created.length > 1 || stored.some(other => other.id !== record.id && other[field] === record[field]))).map(field => pointer(field))
          const isConflict = isValid && used.length > 0
          const paths = ((body as { errors?: { path: string }[] }).errors ?? []).map(({ path }) => created.length > 1 ? path.replace(/^\/[01](?=\/|$)/, '') : path)
          const isExpected = isConflict
            ? status === 409 && paths.every(path => used.includes(path))
            : isValid
              ? status === (isReplacement ? 200 : 201) && isDeepStrictEqual(body, created.length > 1 ? created : record)
              : status === 400 && (body as { detail: string }).detail !== 'Invalid body: .' && paths.every(path => ajv.errors?.some(({ instancePath }) => path.startsWith(instancePath.slice(0, 256))))
          if (!isExpected) problems.push({ name, schema, fields, status, body })
          if (isConflict) conflicts++
          if (!isValid || isConflict) continue
          accepted++
          if (isReplacement) stored[0] = record
          else stored.push(...created)
          nextId = Math.max(nextId, Number(created.at(-1)?.id) + 1)
          if (n % 5 === 4) {
            const removed = stored.pop()
            const deleted = await send('DELETE', `${path}/${removed?.id}`)
            if (deleted.status !== 204) problems.push({ name, removed, ...deleted })
          }
        }
        const { body: list } = await send('GET', path)
        if (!isDeepStrictEqual(list, stored)) problems.push({ name, schema, stored, list })
      }
      return { problems, accepted, conflicts, requests: count * perSchema }
    }
  }
}
