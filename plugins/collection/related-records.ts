import type { FastifyInstance, FastifyRequest } from 'fastify'
import { requireScope } from '../guards/scopes.js'
import type { Stores } from '../host-stores.js'
import { ownDecorator } from '../common/plugin.js'
import type { Fields, Id, JsonStore } from '../stores/store.js'
import type { CheckedDefinition } from '../definition/definition.js'

/** Whether a request asks for related records. */
export function hasExpand ({ query }: FastifyRequest) {
  return (query as { expand?: string }).expand !== undefined
}

export type RelatedRecords = ReturnType<typeof relatedRecords>

/** Returns a function that adds `expand` to records: those that they refer to, by field. */
export function relatedRecords (app: FastifyInstance, { references }: CheckedDefinition) {
  return async function expanded (request: FastifyRequest, json: string | Buffer) {
    const { expand } = request.query as { expand: string }
    const given: Fields | Fields[] = JSON.parse(String(json))
    const records: Fields[] = [given].flat()
    const fields = [...new Set(expand.split(','))]
    const related = await Promise.all(fields.map(field => findRelated(request, field, records)))
    for (const record of records) {
      const entries = fields.map((field, n) => [field, related[n]?.get(record[field])])
      record.expand = Object.fromEntries(entries.filter(([, record]) => record !== undefined))
    }
    return JSON.stringify(given)
  }

  /** The records that others refer to with a field, by id. A client must be allowed to read them. */
  async function findRelated (request: FastifyRequest, field: string, records: Fields[]) {
    const target = references[field] ?? ''
    requireScope(request, target)
    const ids = new Set(records.map(record => record[field] as Id | undefined ?? undefined))
    ids.delete(undefined)
    const store = ownDecorator<Stores>(app, 'stores', 'open')?.opened(target)
    const found = ids.size > 0 && store ? await allOf(store, [...ids] as Id[]) : []
    return new Map(found.map(record => [record.id, record]))
  }
}

/** A page can have fewer records than its limit, if they are large. */
async function allOf (store: JsonStore, ids: Id[]) {
  const records: Fields[] = []
  for (let after: string | undefined, isFirst = true; isFirst || after; isFirst = false) {
    const { list, next } = await store.select({ where: { id: ids }, limit: ids.length, after })
    records.push(...JSON.parse(String(list)))
    after = next
  }
  return records
}
