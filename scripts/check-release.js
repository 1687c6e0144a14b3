// Refuses to publish a package whose page on npm would be broken, or whose changes are not described.
import { readFileSync } from 'node:fs'

const { repository, version } = JSON.parse(readFileSync('package.json', 'utf8'))
const problems = []
if (!repository) {
  problems.push('package.json has no repository, so npm cannot resolve the images and links of README.md. Run: npm pkg set repository=github:OWNER/NAME')
}
if (!readFileSync('CHANGELOG.md', 'utf8').includes(`\n## [${version}]`)) {
  problems.push(`CHANGELOG.md has no section for ${version}. Rename "Unreleased".`)
}
if (problems.length > 0) {
  console.error(problems.join('\n'))
  process.exitCode = 1
}
