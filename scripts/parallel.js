// Runs scripts of package.json in parallel, one per core, and prints the output of those that fail.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8'))
const waiting = process.argv.slice(2)
await Promise.all(Array.from({ length: availableParallelism() }, work))

async function work () {
  for (let name = waiting.shift(); name; name = waiting.shift()) await run(name)
}

async function run (name) {
  const began = performance.now()
  const child = spawn(scripts[name], { shell: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', text => { output += text })
  const [code] = await once(child, 'close')
  console.log(`${code === 0 ? 'ok' : 'not ok'} ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`)
  if (code !== 0) {
    console.log(output)
    process.exitCode = 1
  }
}
