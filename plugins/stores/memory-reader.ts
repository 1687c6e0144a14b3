import BTreeModule from 'sorted-btree'
import type { Row } from './collection.js'
import type { Counter, Reader } from './engine.js'
import type { Field } from './indexed-fields.js'
import { maxListSize, type Piece, type Range } from './lists.js'
import { compare, comparePlaces, testOf, type Place, type Plan, type Value } from './query-plan.js'
import type { Summary, SummaryRow } from './summary.js'

// On Node.js, the import is the CommonJS module. On Bun, it is the class.
export const BTree = BTreeModule.default ?? BTreeModule as unknown as typeof BTreeModule.default
type Index = InstanceType<typeof BTree<Place, Row>>

/** The records of a collection. A transaction changes a copy, which shares everything else with the original. */
export interface Table {
  rows: InstanceType<typeof BTree<number, Row>>
  /** The records by the value of a field, for each field with an index. */
  indexes: Map<string, Index>
  counter: Counter
  /** The list of all records, if it is not long. It is made when it is read, and lost with the next change. */
  list?: { json: Buffer | undefined }
}

export type TableOf = (collection: string) => Table

/** The first record with this value of a field, after a position. */
export function holder ({ indexes }: Table, field: string, value: Value, position = 0) {
  const [place, row] = indexes.get(field)?.nextHigherPair({ value, position }) ?? []
  return place?.value === value ? row : undefined
}

/** Reads the tables. */
export function readerOn (tableOf: TableOf): Reader {
  return {
    first: ({ name }, id) => holder(tableOf(name), 'id', id)?.json,
    keptList: ({ name }) => keptList(tableOf(name)),
    piece: ({ name }, range) => pieceOf(tableOf(name), range),
    count: ({ name }, plan) => plan.conditions.length === 0
      ? Math.min(tableOf(name).rows.size, plan.limit)
      : rowsIn(tableOf(name), { plan, count: plan.limit }).length,
    summarize: ({ name }, plan, summary) => summarize(rowsIn(tableOf(name), { plan, count: Infinity }), summary),
    lastPosition: ({ name }) => tableOf(name).rows.maxKey() ?? 0
  }
}

function pieceOf (table: Table, range: Range): Piece {
  const { count, plan: { sort } } = range
  const found = rowsIn(table, { ...range, count: count + 1 })
  const rows = found.slice(0, count)
  const last = rows.at(-1)
  return {
    json: rows.map(({ json }) => json).join(),
    count: rows.length,
    last: last && { value: sort && last.values[sort.name], position: last.position },
    hasMore: found.length > count
  }
}

function keptList (table: Table) {
  if (!table.list) {
    const json: string[] = []
    let size = 0
    for (const row of table.rows.values()) {
      json.push(row.json)
      size += row.json.length
      if (size > maxListSize) break
    }
    table.list = { json: size > maxListSize ? undefined : Buffer.from(`[${json}]`) }
  }
  return table.list.json
}

function rowsIn (table: Table, { plan, after, lastPosition = Infinity, count }: Range) {
  const tests = plan.conditions.map(condition => ({ field: condition.field.name, isMet: testOf(condition) }))
  const rows: Row[] = []
  for (const row of walk(table, plan, after)) {
    if (row.position > lastPosition) continue
    if (tests.every(({ field, isMet }) => isMet(row.values[field]))) rows.push(row)
    if (rows.length === count) break
  }
  return rows
}

function summarize (rows: Row[], { group, sum, min, max }: Summary): SummaryRow[] {
  const groupOf = ({ values }: Row) => {
    const value = group && values[group.field.name]
    return typeof value === 'string' ? value.slice(0, group?.length) : value
  }
  const groups = new Map<Value, Row[]>(group ? [] : [[undefined, []]])
  for (const row of rows) {
    const others = groups.get(groupOf(row))
    if (others) others.push(row)
    else groups.set(groupOf(row), [row])
  }
  return Array.from(groups).sort(([one], [other]) => compare(one, other)).map(([group, rows]) => {
    const valuesOf = ({ name }: Field) => rows.map(({ values }) => values[name]).filter(value => value !== undefined)
    return {
      group,
      count: rows.length,
      sum: sum.map(field => valuesOf(field).reduce((sum, value) => sum + BigInt(value as number), 0n)),
      min: min.map(field => least(valuesOf(field), compare)),
      max: max.map(field => least(valuesOf(field), (one, other) => compare(other, one)))
    }
  })
}

function least (values: Value[], order: typeof compare) {
  const [first, ...others] = values
  return others.reduce((one, other) => order(other, one) < 0 ? other : one, first)
}

/** Walks over the index of the order, or of a field with one value, and otherwise over all records. */
function walk (table: Table, { conditions, sort, descending }: Plan, after?: Place) {
  if (sort) return inOrder(table.indexes.get(sort.name) as Index, descending, after)
  const single = conditions.find(({ operator, value }) => operator === 'in' && (value as Value[]).length === 1)
  const index = single && table.indexes.get(single.field.name)
  if (!index) return all(table, after)
  const [value] = single.value as Value[]
  return withValue(index, { value, position: after?.position ?? 0 })
}

function * all ({ rows }: Table, after?: Place) {
  for (const [position, row] of rows.entries(after?.position)) if (position !== after?.position) yield row
}

function * inOrder (index: Index, descending: boolean, after?: Place) {
  const entries = descending ? index.entriesReversed(after) : index.entries(after)
  for (const [place, row] of entries) if (!after || comparePlaces(place, after) !== 0) yield row
}

function * withValue (index: Index, after: Place) {
  for (const [place, row] of index.entries(after)) {
    if (place.value !== after.value) return
    if (place.position !== after.position) yield row
  }
}
