/** The seed of generated values. `SEED` repeats a failure. */
export function seedOf () {
  return process.env.SEED ? { seed: Number(process.env.SEED) } : {}
}
