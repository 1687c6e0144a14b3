// Writes the results of a run to results.md and results.svg.
import { writeFileSync } from 'node:fs'
import { cpus, arch, platform } from 'node:os'

const ours = 'fastify-items-users'

export function report ({ results, caching, growth, million, engines, queries, startup, rounds }) {
  const peers = [...new Set(results.flatMap(({ figures }) => Object.keys(figures)))]
  const rows = results.map(result => {
    const base = result.figures[result.against] ?? result.figures['node:http']
    const ratios = Object.fromEntries(peers.map(peer => [peer, ratio(result.figures[peer], base)]))
    return { ...result, ratios }
  })
  const markdown = `# Results

Requests per second as a ratio to \`node:http\` with hand-written routing; the list of 10,000 as a ratio to nginx, which
sends the same bytes from a file. Each figure is the median of ${rounds} ratios, each within a round of one second per
server. The servers run on one core and the load on another. Node ${process.version} unless a column says otherwise, ${platform()} ${arch()}, ${cpus()[0].model}.

| workload | ${peers.join(' | ')} |
|---|${peers.map(() => '---|').join('')}
${rows.map(({ name, ratios }) => `| ${name} | ${peers.map(peer => show(ratios[peer])).join(' | ')} |`).join('\n')}

A dash means that the server does not send the same bytes.

## Compression and conditional requests

A list of 10,000 records.

| workload | ratio |
|---|---|
${caching.ratios.map(({ name, ratios }) => `| ${name} | ${median(ratios).toFixed(2)} |`).join('\n')}

The 99th percentile of GET one is ${caching.p99.toFixed(1)} ms while the list is changed and read with gzip without a pause.

## Size of the collection

| records | GET the last, as a ratio to 1 record | the whole list | RSS |
|---|---|---|---|
${growth.map(({ size, one, bytes, ms, rss }) =>
  `| ${size.toLocaleString('en')} | ${(one / growth[0].one).toFixed(2)} | ${(bytes / 1e6).toFixed(1)} MB in ${ms.toFixed(0)} ms | ${rss.toFixed(0)} MB |`).join('\n')}

## A million records

| measurement | result |
|---|---|
| 99th percentile of GET one while four lists are being read | ${million.p99.toFixed(1)} ms |
| memory for ten clients that do not read a list | ${Math.round(million.held / 1e6)} MB (a list is 40 MB) |
| deleting and creating a user, compared with a list | ${million.change.toFixed(1)} ms, list ${million.list.toFixed(0)} ms |
| memory, compared with objects in an array and a \`Map\` | ${million.memory.toFixed(2)} |

## Databases

Requests per second with 64 connections, compared with the same database without the service. All processes share the cores.

| workload | ratio |
|---|---|
${engines.map(({ name, ratios }) => `| ${name} | ${median(ratios).toFixed(2)} |`).join('\n')}

## Queries of a million records

Without HTTP. A time is that of one call after another; a rate is that of 64 callers.

| workload | ratio |
|---|---|
${queries.map(({ name, ratios }) => `| ${name} | ${median(ratios).toFixed(2)} |`).join('\n')}

## Startup

Time from the start of the process to the first response: ${median(startup).toFixed(2)} times that of Fastify with
@fastify/swagger-ui.
`
  writeFileSync('results.md', markdown)
  writeFileSync('results.svg', picture(rows))
  console.log(markdown)
}

function ratio (values, base) {
  return values && base && median(values.map((value, round) => value / base[round]))
}

function median (values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1]
}

function show (value) {
  return value === undefined ? '–' : value.toFixed(value < 0.1 ? 3 : 2)
}

/** Draws bars for each workload: the service and the other servers, as ratios. */
function picture (rows) {
  const shown = rows.filter(({ name }) => name !== 'GET the last of 50,000')
  const names = [ours, 'on Node 26', 'node:http', 'Fastify', 'Hono', 'Express', 'FastAPI', 'Go net/http', 'Hono on Bun', 'Elysia on Bun', 'nginx']
  const colours = ['#0b7285', '#0b7285', '#495057', '#868e96', '#adb5bd', '#ced4da', '#dee2e6', '#868e96', '#adb5bd', '#ced4da', '#495057']
  const lines = []
  let y = 20
  for (const { name, ratios } of shown) {
    lines.push(`<text x="0" y="${y}" font-weight="bold">${name}</text>`)
    y += 8
    for (const [n, peer] of names.entries()) {
      const value = ratios[peer]
      if (value === undefined) continue
      lines.push(`<text x="150" y="${y + 11}" text-anchor="end">${peer}</text>`)
      lines.push(`<rect x="160" y="${y}" width="${(value * 380).toFixed(0)}" height="13" fill="${colours[n]}"/>`)
      lines.push(`<text x="${(168 + value * 380).toFixed(0)}" y="${y + 11}">${show(value)}</text>`)
      y += 17
    }
    y += 22
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 ${y}" width="640" height="${y}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
${lines.join('\n')}
</svg>
`
}
