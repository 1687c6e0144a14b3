// Starts servers, and measures their requests per second with wrk. Servers run on core 0; this process, wrk and
// PostgreSQL run on core 1.
import { execFile, execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

export const seconds = Number(process.env.SECONDS ?? 2)

/** A folder that exists as long as this process. */
export const folder = mkdtempSync(join(tmpdir(), 'bench-'))

const children = []
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))

execFileSync('taskset', ['-acp', '1', String(process.pid)])

let port = 8000

/** Starts a server, and returns it with the milliseconds until its first response. */
export async function start ({ name, command, env }) {
  const url = `http://127.0.0.1:${++port}`
  const began = performance.now()
  const child = spawn('taskset', ['-c', '0', ...command], {
    env: { ...process.env, ...env, PORT: String(port) },
    stdio: ['ignore', openSync(join(folder, `${port}.log`), 'w'), 'inherit']
  })
  children.push(child)
  while (!await fetch(`${url}/api/items/1`).then(({ ok }) => ok, () => false)) {
    if (child.exitCode !== null) throw new Error(`${name} does not start`)
    await sleep(5)
  }
  const milliseconds = performance.now() - began
  return { name, url, milliseconds, stop: () => child.kill('SIGKILL') }
}

/**
 * Requests per second in each round, by name. A contender is a server with a workload. The first round is a warm-up,
 * and the order changes, so that none is always the second one.
 */
export async function compare (contenders, rounds) {
  const rates = Object.fromEntries(contenders.map(({ name }) => [name, []]))
  for (let round = 0; round <= rounds; round++) {
    for (const { name, url, workload } of round % 2 ? contenders : contenders.toReversed()) {
      const rate = await load(url, workload)
      if (round > 0) rates[name].push(rate)
    }
  }
  return rates
}

/** The median of the ratios of two contenders within each round, or nothing if one has not been measured. */
export function ratio (rates, others) {
  if (!rates || !others) return
  const ratios = rates.map((rate, round) => rate / others[round])
  return ratios.sort((a, b) => a - b)[ratios.length >> 1]
}

/** Requests per second. With `refused`, a workload expects errors. */
async function load (url, { path, clients = 64, refused = false, ...request }) {
  const script = join(folder, 'request.lua')
  writeFileSync(script, luaOf({ path, ...request }))
  const options = ['-t1', `-c${clients}`, `-d${seconds}s`, '-s', script]
  const { stdout } = await promisify(execFile)('wrk', [...options, url + path])
  if (/Non-2xx/.test(stdout) !== refused || /Socket errors: (?!connect 0, read 0, write 0)/.test(stdout)) {
    throw new Error(`${url}${path}: ${stdout}`)
  }
  return Number(stdout.match(/Requests\/sec:\s+([\d.]+)/)[1])
}

/** The script of wrk. In a path and a body, `{n}` is another number each time, and `{id}` is 1 to 10,000 in turn. */
function luaOf ({ method = 'GET', path, body }) {
  const constant = [`wrk.method = '${method}'`]
  if (body) constant.push(`wrk.body = [==[${body}]==]`, "wrk.headers['content-type'] = 'application/json'")
  if (!/\{(id|n)\}/.test(path + body)) return constant.join('\n')
  return `${constant.join('\n')}
    local n = os.time() * 1000
    local function fill (text)
      return text and text:gsub('{id}', n % 10000 + 1):gsub('{n}', n) or nil
    end
    request = function ()
      n = n + 1
      return wrk.format(nil, fill('${path}'), nil, fill(wrk.body))
    end`
}
