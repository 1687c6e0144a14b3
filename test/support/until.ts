import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Waits until a condition is true, and checks it less often the longer it takes. The default timeout is for a busy
 * machine.
 */
export async function until (condition: () => boolean | Promise<boolean>, seconds = 120) {
  const deadline = performance.now() + seconds * 1000
  for (let pause = 25; !await condition(); pause = Math.min(pause + 25, 250)) {
    if (performance.now() > deadline) throw new Error(`Not true within ${seconds} seconds: ${condition}`)
    await sleep(pause)
  }
}
