// Reads a URL again and again, four times at once, until it is ended.
import { get } from 'node:http'

for (let n = 0; n < 4; n++) read()

function read () {
  get(process.argv[2], response => response.resume().on('end', read))
}
