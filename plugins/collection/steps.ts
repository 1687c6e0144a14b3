import { afterOthers, largeBody } from '../http/json-body.js'
import type { HasId, Store } from '../stores/store.js'

/** The steps of a change, each of which takes long for a large record. */
export type Steps = Generator<undefined, HasId, undefined>

/** Thrown by a change that is made in several turns of the event loop instead. */
const largeRecord = new Error('The record is large')

/** The last change of each large record, by store and id. */
const lastChanges = new WeakMap<Store<HasId>, Map<number, Promise<unknown>>>()

/**
 * Replaces the first record with this id. If that takes more than one step, a large one is changed in several turns of the event
 * loop, so that other requests wait less. Changes of the same record wait for each other, because a record that has changed
 * meanwhile is changed again, in one turn.
 */
export async function changeInSteps (store: Store<HasId>, id: number, stepsOf: (current: string) => Steps) {
  try {
    return await store.change(id, current => {
      const steps = stepsOf(current)
      const { done, value } = steps.next()
      if (done) return value
      if (current.length > largeBody) throw largeRecord
      return atOnce(steps)
    })
  } catch (error) {
    if (error !== largeRecord) throw error
  }
  const last = lastChanges.get(store) ?? new Map<number, Promise<unknown>>()
  lastChanges.set(store, last)
  const changed = Promise.resolve(last.get(id)).then(async () => {
    await afterOthers()
    const current = await store.first(id)
    const record = current && await inTurns(stepsOf(current))
    return store.change(id, latest => record && latest === current ? record : atOnce(stepsOf(latest)))
  })
  const ended = changed.catch(() => {}).then(() => { if (last.get(id) === ended) last.delete(id) })
  last.set(id, ended)
  return changed
}

function atOnce (steps: Steps) {
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}

async function inTurns (steps: Steps) {
  let step
  do {
    await afterOthers()
    step = steps.next()
  } while (!step.done)
  await afterOthers()
  return step.value
}
