// The most that node:http can do for a list: the same bytes each time, from memory.
import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'

const list = readFileSync(process.env.LIST)
createServer((request, response) => {
  response.writeHead(200, { 'content-type': 'application/json; charset=utf-8', 'content-length': list.length })
  response.end(list)
}).listen(Number(process.env.PORT))
