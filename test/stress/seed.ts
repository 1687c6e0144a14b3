/** The seed of generated values. `TEST_SEED` repeats a failure. */
export function seedOf () {
  return process.env.TEST_SEED ? { seed: Number(process.env.TEST_SEED) } : {}
}
