/** The environment of a Node process that does not load tap and is not measured for coverage. */
export const uncovered = { ...process.env, NODE_OPTIONS: '', NODE_V8_COVERAGE: '' }
