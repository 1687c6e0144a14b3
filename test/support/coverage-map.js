/** Whether only some test files run, such as with `npx tap test/collections.test.ts`. */
const isPartial = process.argv.slice(2).some(argument => !argument.startsWith('-') && argument.endsWith('.test.ts'))

/** Whether this is `npm test` on its own. Measuring costs a seventh of the time, and only all tests together cover everything. */
export const isQuick = process.env.npm_lifecycle_event === 'test' && process.env.COVERAGE !== 'true'

/**
 * Tells tap what a test file covers: everything, except that the tests in test/programs, those in test/stress, which cover
 * nothing that others do not, and a part of the tests cover nothing. So the coverage does not depend on the programs of the machine, and one
 * test file can pass.
 */
export default function coverageOf (testFile) {
  return isPartial || isQuick || /^test\/(groups\/(faults|programs|stress)|style)\./.test(testFile) ? null : []
}
