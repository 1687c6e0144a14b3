// Writes the results of a run to results.md and results.svg.
import { writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { ratio, seconds } from './measure.js'

const service = 'the service'
const peers = { 'Fastify with its log': 'the service with its log' }

export function report ({ nodes, databases, missing, rounds }) {
  const date = new Date().toISOString().slice(0, 10)
  const markdown = `# Results

${date}, ${cpus()[0].model}. Left out, because not installed: ${missing.join(', ') || 'nothing'}.

Each figure is the requests per second of the service divided by those of another server: the median of the ratios of
${rounds} rounds, each with ${seconds} s for each server, after a warm-up. Data is in memory. Each server has one core, and
wrk, with 64 connections, has another one. The service has no log where the other server has none.

The careful Fastify has what one adds by hand for the same responses: ETags with SHA-256, \`Cache-Control\`, a strict
Ajv, JSON errors with all problems, and a document. A dash means that a server does not send the same bytes.

${nodes.map(nodeSection).join('\n')}${databases ? databaseSection(databases) : ''}`
  writeFileSync('results.md', markdown)
  writeFileSync('results.svg', picture(nodes[0]))
  console.log(markdown)
}

function nodeSection ({ version, rows, servers, last, startup }) {
  const others = servers.map(({ name }) => name).filter(name => !name.startsWith(service))
  const ratios = rates => others.map(other => show(ratio(rates[peers[other] ?? service], rates[other])))
  const lines = rows.map(({ name, rates }) => [name, ...ratios(rates)])
  return `## Node ${version}

${table(['', ...others], lines)}

- GET the last of 1,000,000 items, to the first one: ${show(last)}.
- Time from the start to the first response, to Fastify with @fastify/swagger and @fastify/swagger-ui: ${show(startup)}.
`
}

function databaseSection ({ commit, rounds, rows }) {
  const names = Object.keys(rows[0]).filter(key => key !== 'name')
  const lines = rows.map(row => [row.name, ...names.map(name => show(row[name]))])
  return `
## Databases

Requests per second of this version divided by those of commit ${commit}: the median of ${rounds} rounds. Each service
has one core; PostgreSQL and wrk share the other one.

${table(['', ...names], lines)}
`
}

function table (head, rows) {
  const lines = [head, head.map(() => '---'), ...rows]
  return lines.map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

function show (value) {
  return value === undefined ? '–' : value.toFixed(2)
}

/** Bars for each workload, where the service is 1. The longest one has the whole width. */
function picture ({ rows }) {
  const lines = []
  let y = 20
  for (const { name, rates } of rows) {
    const bars = Object.keys(rates).map(server => ({ server, value: ratio(rates[server], rates[service]) }))
    const longest = Math.max(...bars.map(({ value }) => value))
    lines.push(`<text x="0" y="${y}" font-weight="bold">${name}: requests per second</text>`)
    y += 8
    for (const { server, value } of bars) {
      const width = Math.ceil(value / longest * 420)
      const colour = server.startsWith(service) ? '#0b7285' : '#adb5bd'
      lines.push(`<text x="150" y="${y + 11}" text-anchor="end">${server}</text>`)
      lines.push(`<rect x="160" y="${y}" width="${width}" height="13" fill="${colour}"/>`)
      lines.push(`<text x="${168 + width}" y="${y + 11}">${show(value)}</text>`)
      y += 17
    }
    y += 22
  }
  const size = `viewBox="0 0 640 ${y}" width="640" height="${y}"`
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
${lines.join('\n')}
</svg>
`
}
