// Reads a URL repeatedly with four connections until it is stopped.
import { get } from 'node:http'

for (let n = 0; n < 4; n++) read()

function read () {
  get(process.argv[2], response => response.resume().on('end', read))
}
