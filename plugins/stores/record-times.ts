import type { AnyRecord } from './store.js'

/** What sets the times of records, if their collection has timestamps. */
export interface RecordTimes {
  /** New records, which have the same time. */
  created (records: readonly AnyRecord[]): readonly AnyRecord[]
  /** A record after a change, and as it was. */
  changed (record: AnyRecord, before: AnyRecord): AnyRecord
  /** A record from elsewhere, with the times that it does not have. */
  completed (record: AnyRecord): AnyRecord
}

export function recordTimes (hasTimestamps = false): RecordTimes {
  if (!hasTimestamps) return { created: records => records, changed: record => record, completed: record => record }
  const now = () => new Date().toISOString()
  return {
    created (records) {
      const time = now()
      return records.map(record => ({ ...record, created_at: time, updated_at: time }))
    },
    changed: (record, before) => ({ ...record, created_at: before.created_at, updated_at: now() }),
    completed: ({ created_at: created = now(), updated_at: updated = created, ...record }) =>
      ({ ...record, created_at: created, updated_at: updated })
  }
}
