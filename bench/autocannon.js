// Prints the requests per second of a server, for machines without wrk.
import { randomUUID } from 'node:crypto'
import autocannon from 'autocannon'

const { request, uniqueHeader, ...options } = JSON.parse(process.argv[2])
const prefix = randomUUID() // keys have a common prefix, as with wrk
let n = 0
const setupRequest = request => {
  const unique = `${prefix}-${++n}`
  return { ...request, body: request.body?.replace('UNIQUE', unique), headers: { ...request.headers, ...uniqueHeader && { [uniqueHeader]: unique } } }
}
const { requests } = await autocannon({ ...options, requests: [{ ...request, ...(uniqueHeader || request.body?.includes('UNIQUE')) && { setupRequest } }] })
console.log(requests.average)
