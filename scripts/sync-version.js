// Writes the version in package.json to the files that cannot read it. `npm version` runs it.
import { readFileSync, writeFileSync } from 'node:fs'

const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
for (const [file, place] of [['plugins/version.ts', /(?<=')[\w.-]+(?=')/], ['deploy/kubernetes.yaml', /(?<=image: fastify-items-users:)\S+/]]) {
  writeFileSync(file, readFileSync(file, 'utf8').replace(place, version))
}
