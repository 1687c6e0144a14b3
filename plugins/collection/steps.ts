import { setImmediate as nextTurn } from 'node:timers/promises'
import { largeBody } from '../http/json-body.js'
import type { HasId, Store } from '../stores/store.js'

/** The steps of a change, each of which takes long for a large record. */
export type Steps = Generator<undefined, HasId, undefined>

/** Thrown by a change that is made in several turns of the event loop instead. */
const largeRecord = new Error('The record is large')

/** The last change of a large record, by store. */
const lastChanges = new WeakMap<Store<HasId>, Promise<unknown>>()

/**
 * Replaces the first record with this id. A large one takes several turns of the event loop, so that other requests wait less.
 * It is changed after the others of its store, because a record that has changed meanwhile is changed again, in one turn.
 */
export async function changeInSteps (store: Store<HasId>, id: number, stepsOf: (current: string) => Steps) {
  try {
    return await store.change(id, current => {
      if (current.length > largeBody) throw largeRecord
      return atOnce(stepsOf(current))
    })
  } catch (error) {
    if (error !== largeRecord) throw error
  }
  const changed = Promise.resolve(lastChanges.get(store)).then(async () => {
    const current = await store.first(id)
    const record = current && await inTurns(stepsOf(current))
    return store.change(id, latest => record && latest === current ? record : atOnce(stepsOf(latest)))
  })
  lastChanges.set(store, changed.catch(() => {}))
  return changed
}

function atOnce (steps: Steps) {
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}

async function inTurns (steps: Steps) {
  let step = steps.next()
  for (; !step.done; step = steps.next()) await nextTurn()
  return step.value
}
