// Checks the options and environment variables without a build: npm start runs it before it compiles.
import { readCommandLine, readConfig } from '../src/config.js'

try {
  const { set } = readCommandLine(process.argv.slice(2))
  if (set) readConfig(process.env, set)
} catch (error) {
  console.error((error as Error).message)
  process.exitCode = 1
}
