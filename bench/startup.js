// The time from the start of a process to its first response.
import { spawn } from 'node:child_process'
import { get } from 'node:http'

export function timeToAnswer (file, port) {
  return new Promise(resolve => {
    const began = performance.now()
    const child = spawn('node', [file], { env: { ...process.env, PORT: String(port), LOG_LEVEL: 'silent' }, stdio: 'inherit' })
    ask()

    function ask () {
      get({ host: '127.0.0.1', port, path: '/api/items', agent: false }, response => {
        response.resume()
        child.kill('SIGKILL')
        resolve(performance.now() - began)
      }).on('error', () => setTimeout(ask, 2))
    }
  })
}
