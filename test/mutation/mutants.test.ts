import { readFileSync } from 'node:fs'
import { test } from 'tap'
// @ts-expect-error -- it has no types
import { mutants } from './mutants.js'

test('every mutant fits the code', async t => {
  for (const { file, before } of mutants) t.equal(readFileSync(file, 'utf8').split(before).length, 2, `${file} contains once: ${before}`)
})
