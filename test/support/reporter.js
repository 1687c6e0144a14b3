import { Transform } from 'node:stream'
import { isQuick } from './coverage-map.js'

/**
 * Prints one line per test file and its failures, and at the end the number of checks, the time, and one line for each
 * reason to skip tests. `npm test -- --reporter=tap` prints everything.
 */
export default class Reporter extends Transform {
  #rest = ''
  #lines = []
  #skipped = new Map()
  #counts = new Map()
  #seconds = 0

  _transform (chunk, _encoding, done) {
    const lines = (this.#rest + chunk).split('\n')
    this.#rest = lines.pop()
    for (const line of lines) this.#take(line)
    done()
  }

  #take (line) {
    const [, outcome, file, seconds] = /^(not ok|ok) \d+ - (.+?)(?: # time=([\d.]+)ms)?(?: {)?$/.exec(line) ?? []
    if (outcome && !line.endsWith('{')) {
      const text = this.#lines.join('\n')
      const count = text.match(/^ +(not )?ok /gm)?.length ?? 0
      this.push(`${outcome} ${file} (${count} checks, ${(Number(seconds) / 1000).toFixed(1)} s)\n`)
      for (const [, reason] of text.matchAll(/^ +ok \d+ - .+? # SKIP (.+)$/gm)) this.#skipped.set(reason, 1 + (this.#skipped.get(reason) ?? 0))
      if (outcome === 'not ok') this.push(failuresIn(this.#lines))
      this.#lines = []
    } else if (line.startsWith('Bail out!')) this.push(`${line}\n`)
    else if (line.startsWith('# { ')) this.#counts = new Map(Array.from(line.matchAll(/(\w+): (\d+)/g), ([, name, count]) => [name, count]))
    else if (line.startsWith('# time=')) this.#seconds = parseFloat(line.slice(7)) / 1000
    else this.#lines.push(line)
  }

  _flush (done) {
    this.push(`${this.#counts.get('pass') ?? 0} checks passed${this.#counts.has('fail') ? `, ${this.#counts.get('fail')} failed` : ''}, in ${this.#seconds.toFixed()} s\n`)
    for (const [reason, count] of this.#skipped) this.push(`skipped ${count} ${count === 1 ? 'test' : 'tests'}: ${reason}\n`)
    if (isQuick) this.push('npm run test:all runs the rest: processes, outages, the package, the browser, stress and other programs\n')
    done()
  }
}

/** The failed checks, each with the titles of its tests and the last request. A long body is cut. */
function failuresIn (lines) {
  const titles = []
  const shown = []
  for (let n = 0; n < lines.length; n++) {
    const line = lines[n]
    const depth = line.search(/\S/) / 4
    const [, title] = /^ +# Subtest: (.+)$/.exec(line) ?? []
    if (title) titles.splice(depth - 1, Infinity, title)
    const isCheck = / *not ok \d+/.test(line) && !line.includes(`- ${titles[depth - 1]}`)
    if (isCheck) shown.push(`  ${titles.slice(0, depth - 1).join(' > ')}`, `    ${line.trim()}`, ...detailsAfter(lines, n))
    if (/^ +# curl /.test(line)) shown.push(`      ${line.trim().slice(2)}`)
  }
  return shown.map(line => line.length > 4000 ? `${line.slice(0, 4000)}… (${line.length} characters)\n` : `${line}\n`).join('')
}

/** The details of a check. */
function detailsAfter (lines, n) {
  const end = lines.findIndex((line, at) => at > n && line.trim() === '...')
  return lines[n + 1]?.trim() === '---' ? lines.slice(n + 2, end) : []
}
