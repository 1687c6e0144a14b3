import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import type { Health } from '../../plugins/operations/health.js'
import { version } from '../../plugins/common/version.js'
import { Config } from '../../schemas/config.js'
import { readConfig } from '../../src/read-config.js'
import { uncovered as env } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { install } from '../support/install.js'
import { freePort } from '../support/postgres.js'
import { without } from '../support/programs.js'

const run = promisify(execFile)
const read = (file: string) => readFileSync(resolve(file), 'utf8')
const tools = 'test/deploy/tools'
const skip = await install(tools)

interface Probe {
  httpGet: { path: string; port: string }
  periodSeconds: number
  timeoutSeconds: number
  failureThreshold: number
}

interface Container {
  image: string
  ports: { name: string, containerPort: number }[]
  env: { name: string, value?: string }[]
  startupProbe: Probe
  livenessProbe: Probe
  readinessProbe: Probe
  securityContext: object
}

interface Pod {
  metadata: { labels: Record<string, string> }
  spec: { terminationGracePeriodSeconds: number, securityContext: object, containers: [Container] }
}

interface Manifest {
  apiVersion: string
  kind: string
  spec: { replicas: number, maxUnavailable: number, jobLabel: string, template: Pod, [more: string]: unknown }
}

/** The documents of a YAML file. Throws if one has errors. */
function parseYaml<T = Manifest> (file: string): T[] {
  const { parseAllDocuments } = createRequire(resolve(tools, 'package.json'))('yaml')
  return parseAllDocuments(read(file)).map((document: { errors: Error[], toJS (): T }) => {
    if (document.errors[0]) throw document.errors[0]
    return document.toJS()
  })
}

/** The variables in a line such as `ENV HOST=0.0.0.0 PORT=3000`. */
function variablesIn (file: string, line: RegExp): Record<string, string> {
  const [, variables = ''] = line.exec(read(file)) ?? []
  return Object.fromEntries(variables.split(' ').map(variable => variable.split('=')))
}

/** An app whose database cannot be reached. */
async function withoutDatabase (t: Test) {
  const DATABASE_URL = `postgres://ada:sesame@127.0.0.1:${await freePort()}/items`
  const app = build(t, { DATABASE_URL, DATABASE_TIMEOUT: '500', DOCS: 'false' })
  await app.listen({ port: 0 })
  return { app, port: String((app.server.address() as AddressInfo).port) }
}

test('the health check of the image passes without the database, and fails without the service', async t => {
  const [, command = '[]'] = /^HEALTHCHECK [^[]+(\[.+\])$/m.exec(read('Dockerfile')) ?? []
  const [program = '', ...args]: string[] = JSON.parse(command)
  const check = (PORT: string) => run(program, args, { env: { ...env, PORT } }).then(() => 0, ({ code }) => code)
  const { app, port } = await withoutDatabase(t)
  t.equal((await app.inject('/readyz')).statusCode, 503)
  t.equal(await check(port), 0)
  t.equal(await check(String(await freePort())), 1)
})

test('deploy/kubernetes.yaml and compose.yaml fit the probes, ports, variables and shutdown', { skip }, async t => {
  const imageEnv = variablesIn('Dockerfile', /^ENV (.+)$/m)
  const [deployment, service, budget, policy] = parseYaml('deploy/kubernetes.yaml') as [
    Manifest, Manifest, Manifest, Manifest
  ]
  const kinds = [deployment, service, budget, policy].map(({ kind }) => kind)
  t.same(kinds, ['Deployment', 'Service', 'PodDisruptionBudget', 'NetworkPolicy'])
  const { metadata: { labels }, spec } = deployment.spec.template
  const { image, ports, env, startupProbe, livenessProbe, readinessProbe, securityContext } = spec.containers[0]
  const portOf = Object.fromEntries(ports.map(({ name, containerPort }) => [name, containerPort]))

  t.same(env.filter(({ name }) => !(name in Config.properties)), [], 'the variables exist')
  const values = env.map(({ name, value = 'postgres://host/items' }) => [name, value])
  const config = readConfig({ ...imageEnv, ...Object.fromEntries(values) })
  t.match(config, { HOST: '0.0.0.0', PORT: portOf.http, METRICS_HOST: '0.0.0.0', METRICS_PORT: portOf.metrics })
  t.equal(image, `fastify-items-users:${version}`)
  t.match(service.spec, { selector: labels, ports: [{ targetPort: 'http' }] })
  t.match(policy.spec, {
    podSelector: { matchLabels: labels },
    ingress: [{ ports: [{ port: 'http' }] }, { from: Array }]
  })
  for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) t.equal(httpGet.port, 'http')

  const shutdown = config.SHUTDOWN_DELAY + config.SHUTDOWN_TIMEOUT
  t.ok(spec.terminationGracePeriodSeconds * 1000 > shutdown, 'a pod is not killed during shutdown')
  const { periodSeconds, failureThreshold, timeoutSeconds } = readinessProbe
  t.ok(config.SHUTDOWN_DELAY > periodSeconds * failureThreshold * 1000, 'the readiness probe fails during the delay')
  t.ok(timeoutSeconds * 1000 > config.DATABASE_TIMEOUT, 'the readiness probe waits for the database')
  const [compose] = parseYaml<{ services: { service: { environment: object; stop_grace_period: string } } }>(
    'compose.yaml'
  )
  const { environment = {}, stop_grace_period: grace = '' } = compose?.services.service ?? {}
  const composed = readConfig({ ...imageEnv, ...environment })
  t.ok(parseInt(grace) * 1000 > composed.SHUTDOWN_DELAY + composed.SHUTDOWN_TIMEOUT, 'nor is a container')

  t.match(deployment.spec, { selector: { matchLabels: labels } })
  t.match(budget.spec, { selector: { matchLabels: labels } })
  t.ok(budget.spec.maxUnavailable < deployment.spec.replicas)
  t.match(spec.securityContext, { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } })
  const restricted = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } }
  t.same(securityContext, restricted, 'the restricted Pod Security Standard')
  const { app } = await withoutDatabase(t)
  const probes = [startupProbe, livenessProbe, readinessProbe]
  const statuses = await Promise.all(probes.map(async ({ httpGet }) => (await app.inject(httpGet.path)).statusCode))
  t.same(statuses, [200, 200, 503], 'only readiness needs the database')
})

test('deploy/kubernetes.yaml matches the schemas of Kubernetes', { skip }, async t => {
  const folder = newFolder(t)
  const manifests = parseYaml('deploy/kubernetes.yaml')
  const typed = manifests.map((manifest, n) => {
    const { apiVersion, kind } = manifest
    const group = apiVersion.includes('/') ? apiVersion.replace('.k8s.io', '') : `core/${apiVersion}`
    const path = `${resolve(tools)}/node_modules/kubernetes-types/${group}.js`
    return `import type { ${kind} } from '${path}'\nexport const manifest${n}: ${kind} = ${JSON.stringify(manifest)}\n`
  }).join('')
  writeFileSync(`${folder}/right.ts`, typed)
  writeFileSync(`${folder}/wrong.ts`, typed.replace('livenessProbe', 'livenesProbe'))
  const options = {
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    lib: ['es5'],
    types: [],
    module: 'nodenext',
    target: 'es2022'
  }
  writeFileSync(
    `${folder}/tsconfig.json`,
    JSON.stringify({ compilerOptions: options, files: ['right.ts', 'wrong.ts'] })
  )
  const compiler = ['node_modules/typescript/lib/tsc.js', '--project', folder]
  const { stdout } = await run(process.execPath, compiler, { env }).catch(error => error)
  t.match(
    stdout.trim(),
    /^\S*wrong\.ts.+"livenesProbe"' does not exist in type 'Container'\.$/,
    'only the control fails'
  )
})

test('systemd accepts the unit, which waits for the shutdown', { skip: without('systemd-analyze') }, async t => {
  const unit = read('deploy/items-users.service')
  t.same(await run('systemd-analyze', ['verify', 'deploy/items-users.service']), { stdout: '', stderr: '' })
  const config = readConfig(variablesIn('deploy/items-users.service', /^Environment=(.+)$/m))
  t.equal(config.DATABASE_URL, `sqlite:/var/lib/${/^StateDirectory=(.+)$/m.exec(unit)?.[1]}/items.db`)
  const [, timeout] = /^TimeoutStopSec=(\d+)$/m.exec(unit) ?? []
  t.ok(Number(timeout) * 1000 > config.SHUTDOWN_DELAY + config.SHUTDOWN_TIMEOUT)
})

test('haproxy accepts deploy/haproxy.cfg', { skip: without('haproxy') }, async t => {
  const file = `${newFolder(t)}/haproxy.cfg`
  writeFileSync(file, read('deploy/haproxy.cfg').replace(/server (node\d) \S+/g, 'server $1 127.0.0.1:1'))
  await t.resolves(run('haproxy', ['-c', '-f', file], { env }))
})

interface Dashboard {
  panels: { title: string, targets: { expr: string }[] }[]
}

/** The expressions of the alert rules and of the dashboard, by their names. */
function expressions () {
  const [rules] = parseYaml<{ groups: { rules: { alert: string, expr: string }[] }[] }>('deploy/prometheus-rules.yaml')
  const alerts = rules?.groups.flatMap(group => group.rules) ?? []
  const { panels }: Dashboard = JSON.parse(read('deploy/grafana-dashboard.json'))
  const queries = panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr })))
  return {
    alerts,
    queries: queries.map(({ title, expr }) => ({ title, expr: expr.replaceAll('$__rate_interval', '5m') }))
  }
}

test('the alert rules and the dashboard use only metrics and labels that the service exports', { skip }, async t => {
  const lines: string[] = []
  const settings = {
    DATABASE_URL: `sqlite:${newFolder(t)}/items.db`,
    METRICS_PORT: '0',
    LOG_LEVEL: 'info',
    DOCS: 'false'
  }
  const app = build(t, settings, { write: line => lines.push(line) })
  for (const url of ['/api/items', '/api/items/1', '/livez', '/readyz']) await app.inject(url)
  app.getDecorator<Health['markNotReady']>('markNotReady')()
  await app.inject('/readyz')
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  const { alerts, queries } = expressions()
  for (const { name, expr } of [
    ...alerts.map(({ alert, expr }) => ({ name: alert, expr })),
    ...queries.map(({ title, expr }) => ({ name: title, expr }))
  ]) {
    for (const [, metric = '', matchers = ''] of expr.matchAll(/\b([a-z]+_[a-z_]+){(.*?)}/g)) {
      if (metric.startsWith('nodejs_gc')) continue // exists after the first collection of garbage
      const samples = text.split('\n').filter(line => line.startsWith(`${metric}{`) || line.startsWith(`${metric} `))
      t.ok(samples.length > 0, `${name}: ${metric}`)
      const labels = Array.from(matchers.matchAll(/(\w+)\s*[=!]/g), ([, label = '']) => label)
      const own = labels.filter(label => !['job', 'instance'].includes(label))
      for (const label of own) t.match(samples.join('\n'), `${label}="`, `${name}: ${metric} has the label ${label}`)
    }
  }
  const listed = Array.from(read('docs/production.md').matchAll(/^\| `(ItemsUsers\w+)` \|/gm), ([, name]) => name)
  t.same(listed, alerts.map(({ alert }) => alert), 'the manual lists the alerts')
})

test(
  'promtool accepts the rules and the dashboard, and each alert fires',
  { skip: skip ?? without('promtool') },
  async t => {
    const file = `${newFolder(t)}/dashboard.yaml`
    const { alerts, queries } = expressions()
    const rules = queries.map(({ expr }, n) => ({ record: `panel_${n}`, expr }))
    writeFileSync(file, JSON.stringify({ groups: [{ name: 'dashboard', rules }] })) // JSON is YAML
    const { stdout } = await run('promtool', ['check', 'rules', 'deploy/prometheus-rules.yaml', file])
    t.match(stdout, new RegExp(`${rules.length} rules found`))
    t.match((await run('promtool', ['test', 'rules', 'test/deploy/alerts.yaml'])).stdout, 'SUCCESS')
    const fired = read('test/deploy/alerts.yaml').matchAll(/alertname: (\w+)\n +exp_alerts/g)
    const tested = new Set(Array.from(fired, ([, name = '']) => name))
    t.same([...tested].sort(), alerts.map(({ alert }) => alert).sort(), 'a test fires each alert')
  }
)

test('the pods are scraped as the job of the alert rules', { skip }, async t => {
  const [deployment] = parseYaml('deploy/kubernetes.yaml')
  const [monitor] = parseYaml('deploy/podmonitor.yaml')
  const [prometheus] = parseYaml<{ scrape_configs: object[] }>('deploy/prometheus.yaml')
  const { labels = {} } = deployment?.spec.template.metadata ?? {}
  const job = labels[monitor?.spec.jobLabel ?? '']
  const regex = `${labels['app.kubernetes.io/name']};metrics`
  t.match(prometheus?.scrape_configs, [{ job_name: job, relabel_configs: [{ regex }] }])
  t.match(monitor?.spec, { selector: { matchLabels: labels }, podMetricsEndpoints: [{ port: 'metrics' }] })
  const jobs = read('deploy/prometheus-rules.yaml').matchAll(/job="(.*?)"/g)
  t.same(new Set(Array.from(jobs, ([, name]) => name)), new Set([job]))
})

test('the workflow runs the tests on the Node.js versions of the README, and builds the image', { skip }, async t => {
  interface Workflow { jobs: Record<string, { strategy?: { matrix: { node: number[] } }, steps: { run?: string }[] }> }
  const [workflow] = parseYaml<Workflow>('.github/workflows/ci.yml')
  const { test, image } = workflow?.jobs ?? {}
  const commands = [test, image].flatMap(job => job?.steps ?? []).map(({ run }) => run)
  for (const command of ['npm run test:system', 'scripts/check-image']) t.ok(commands.includes(command), command)
  const versions = test?.strategy?.matrix.node ?? []
  t.match(read('README.md'), `tested with ${versions.slice(0, -1).join(', ')} and ${versions.at(-1)}`)
  t.match(read('test/package/environments.long.ts'), `[${versions.map(version => `'${version}'`).join(', ')}]`)
  t.match(read('Dockerfile'), `FROM node:${read('.nvmrc').trim()}-`, '.nvmrc has the version of the image')
})
