import { setTimeout as sleep } from 'node:timers/promises'

/** Waits until something is so. The time that it has is for a machine that is busy with other things. */
export async function until (condition: () => boolean | Promise<boolean>, seconds = 120) {
  const deadline = performance.now() + seconds * 1000
  while (!await condition()) {
    if (performance.now() > deadline) throw new Error(`It has not come to pass within ${seconds} seconds: ${condition}`)
    await sleep(25)
  }
}
