import type { FastifyInstance, FastifyRequest } from 'fastify'
import { requireScope } from '../guards/scopes.js'
import { httpError } from '../http/errors.js'
import type { Stores } from '../host-stores.js'
import { ownDecorator } from '../common/plugin.js'
import type { AnyRecord, Id, JsonStore } from '../stores/store.js'
import type { CheckedDefinition } from '../definition/definition.js'

/** Whether a request asks for related records. */
export function hasExpand ({ query }: FastifyRequest) {
  return (query as { expand?: string }).expand !== undefined
}

export type RelatedRecords = ReturnType<typeof relatedRecords>

/** Returns a function that adds `expand` to records: those that they refer to, by field. */
export function relatedRecords (app: FastifyInstance, { references }: CheckedDefinition) {
  return async function addRelated (request: FastifyRequest, json: string | Buffer) {
    const { expand } = request.query as { expand: string }
    const body: AnyRecord | AnyRecord[] = JSON.parse(String(json))
    const records: AnyRecord[] = [body].flat()
    const fields = [...new Set(expand.split(','))]
    const related = await Promise.all(fields.map(field => findRelated(request, field, records)))
    for (const record of records) {
      const entries = fields.map((field, n) => [field, related[n]?.get(record[field])])
      record.expand = Object.fromEntries(entries.filter(([, target]) => target !== undefined))
    }
    return JSON.stringify(body)
  }

  /** The records that others refer to with a field, by id. One that was deleted meanwhile is left out. */
  async function findRelated (request: FastifyRequest, field: string, records: AnyRecord[]) {
    const target = references[field] ?? ''
    requireScope(request, target)
    const ids = new Set(records.map(record => record[field]).filter(id => id !== undefined && id !== null))
    const store = ownDecorator<Stores>(app, 'stores', 'open')?.expandable(target)
    if (!store) throw httpError(403, `The records of ${target} cannot be read with expand`)
    const found = ids.size > 0 ? await allOf(store, [...ids] as Id[]) : []
    return new Map(found.map(record => [record.id, record]))
  }
}

/** A page can have fewer records than its limit, if they are large. */
async function allOf (store: JsonStore, ids: Id[]) {
  const records: AnyRecord[] = []
  let after: string | undefined
  do {
    const { list, next } = await store.select({ where: { id: ids }, limit: ids.length, after })
    records.push(...JSON.parse(String(list)))
    after = next
  } while (after !== undefined)
  return records
}
