import neostandard from 'neostandard'
import { readFileSync } from 'node:fs'

const { exclude } = JSON.parse(readFileSync('tsconfig.json', 'utf8'))

/** A file may import from its own folder, from packages, and from these paths. */
const mayImport = (files, allowed) => ({
  files: [files],
  rules: {
    'no-restricted-imports': ['error', {
      patterns: [{ regex: `^\\.\\./(?!${allowed})`, message: 'See "Architecture" in CONTRIBUTING.md for what this folder may import.' }]
    }]
  }
})

export default [
  ...neostandard({ ts: true, ignores: ['dist/', '.tap/'] }),
  {
    files: ['{schemas,plugins,src}/**/*.ts'],
    rules: {
      '@stylistic/max-len': ['error', { code: 120, ignoreUrls: true }],
      'no-nested-ternary': 'error'
    }
  },
  // TypeScript finds unused names, in a tenth of the time.
  { files: ['**/*.ts'], ignores: exclude.map(folder => `${folder}/**`), rules: { '@typescript-eslint/no-unused-vars': 'off' } },
  // A schema and the type derived from it share their name.
  { files: ['{schemas,plugins,src,test/stores}/**/*.ts'], rules: { '@typescript-eslint/no-redeclare': 'off' } },
  mayImport('schemas/*.ts', '(?!)'),
  mayImport('plugins/stores/*.ts', '\\.\\./schemas/|startup\\.js$'),
  mayImport('plugins/stores/sql/*.ts', '\\.\\./\\.\\./schemas/|[\\w-]+\\.js$|\\.\\./startup\\.js$'),
  mayImport('plugins/stores/{sqlite,postgres}/*.ts', '\\.\\./\\.\\./schemas/|[\\w-]+\\.js$|sql/|\\.\\./startup\\.js$'),
  mayImport('plugins/http/*.ts', '\\.\\./schemas/|(plugin|startup)\\.js$|stores/(errors|store)\\.js$'),
  mayImport('plugins/{docs,guards,operations}/*.ts', '\\.\\./schemas/|http/|(plugin|startup|version)\\.js$|stores/store\\.js$'),
  mayImport('plugins/collection/*.ts', '\\.\\./schemas/|http/|(plugin|startup|stores|host-stores)\\.js$|stores/(digests|errors|fields|query|store)\\.js$'),
  mayImport('plugins/*.ts', 'schemas/'),
  mayImport('src/*.ts', 'plugins/|schemas/')
]
