// Prints the path of every file that is opened or read.
const fs = require('node:fs')

for (const api of [fs, fs.promises]) {
  for (const name of ['open', 'openSync', 'readFile', 'readFileSync', 'readdir', 'readdirSync', 'createReadStream']) {
    const original = api[name]
    if (original) {
      api[name] = function record (path, ...rest) {
        process.stderr.write(`${path}\n`)
        return original.call(this, path, ...rest)
      }
    }
  }
}
