import { createServer } from 'node:http'
import { find, items, notFound, port, refusal, stored } from './contract.js'

createServer((request, response) => {
  const { method, url } = request
  if (method === 'GET' && url === '/api/items') return send(response, 200, items)
  if (method === 'GET' && url.startsWith('/api/items/')) {
    const item = find(url.slice('/api/items/'.length))
    return item ? send(response, 200, item) : send(response, 404, notFound)
  }
  if (method === 'POST' && url === '/api/items') return create(request, response)
  send(response, 404, notFound)
}).listen(port)

function create (request, response) {
  let text = ''
  request.setEncoding('utf8')
  request.on('data', chunk => { text += chunk })
  request.on('end', () => {
    const item = JSON.parse(text)
    const refused = refusal(item)
    if (refused) send(response, 400, refused)
    else send(response, 201, stored(item))
  })
}

function send (response, status, value) {
  const body = JSON.stringify(value)
  const headers = { 'content-type': 'application/json; charset=utf-8', 'content-length': Buffer.byteLength(body) }
  response.writeHead(status, headers)
  response.end(body)
}
