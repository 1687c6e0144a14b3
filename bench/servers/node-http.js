import { createServer } from 'node:http'
import { items, notFound, port, refusal, stored } from './contract.js'

createServer((request, response) => {
  const { method, url } = request
  if (method === 'GET' && url === '/api/items') return send(response, 200, items)
  if (method === 'GET' && url.startsWith('/api/items/')) {
    const id = Number(url.slice('/api/items/'.length))
    const item = items.find(item => item.id === id)
    return item ? send(response, 200, item) : send(response, 404, notFound)
  }
  if (method === 'POST' && url === '/api/items') {
    let text = ''
    request.setEncoding('utf8')
    request.on('data', chunk => { text += chunk })
    request.on('end', () => {
      const item = JSON.parse(text)
      const refused = refusal(item)
      if (refused) send(response, 400, refused)
      else send(response, 201, stored(item))
    })
    return
  }
  send(response, 404, notFound)
}).listen(port)

function send (response, status, value) {
  const body = JSON.stringify(value)
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', 'content-length': Buffer.byteLength(body) })
  response.end(body)
}
