/** The seed of what is generated, where one is given, so that a failure can be had again. */
export function seedOf () {
  return process.env.SEED ? { seed: Number(process.env.SEED) } : {}
}
