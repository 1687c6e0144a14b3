import { readdirSync, readFileSync } from 'node:fs'

interface Example {
  /** The heading of its section. */
  section: string
  /** The language of the code block, such as `sh`. */
  language: string
  code: string
}

/** The pages of the documentation. */
export const pages = [
  'README.md', ...readdirSync('docs').filter(name => name.endsWith('.md')).map(name => `docs/${name}`)
]

/** The code blocks of a page, in order. */
export function examplesIn (page: string): Example[] {
  return readFileSync(page, 'utf8').split(/^##+ /m).flatMap(text => {
    const [section = ''] = text.split('\n', 1)
    return Array.from(text.matchAll(/^```(\w*)\n(.*?)\n?```$/gms),
      ([, language = '', code = '']) => ({ section, language, code }))
  })
}
