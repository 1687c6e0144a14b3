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
 * Replaces the first record with this id. If that takes more than one step, a large one is changed in several turns of the event
 * loop, so that other requests wait less. It is changed after the others of its store, because a record that has changed
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
  const changed = Promise.resolve(lastChanges.get(store)).then(async () => {
    await nextTurn()
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
  let step
  do {
    await nextTurn()
    step = steps.next()
  } while (!step.done)
  await nextTurn()
  return step.value
}
