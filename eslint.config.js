import neostandard from 'neostandard'

export default [
  ...neostandard({ ts: true, ignores: ['dist/', '.tap/'] }),
  // A schema and the type derived from it share their name.
  { files: ['schemas/*.ts'], rules: { '@typescript-eslint/no-redeclare': 'off' } }
]
