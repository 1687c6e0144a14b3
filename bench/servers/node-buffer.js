// The most that node:http can do for a list: the same bytes each time, from memory.
import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'

const list = readFileSync(process.env.LIST)
const headers = { 'content-type': 'application/json; charset=utf-8', 'content-length': list.length }
if (process.env.CODING) headers['content-encoding'] = process.env.CODING
createServer((request, response) => {
  response.writeHead(200, headers)
  response.end(list)
}).listen(Number(process.env.PORT))
