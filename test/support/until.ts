import { setTimeout as sleep } from 'node:timers/promises'

/** Waits until a condition is true. The default timeout is for a busy machine. */
export async function until (condition: () => boolean | Promise<boolean>, seconds = 120) {
  const deadline = performance.now() + seconds * 1000
  while (!await condition()) {
    if (performance.now() > deadline) throw new Error(`Not true within ${seconds} seconds: ${condition}`)
    await sleep(25)
  }
}
