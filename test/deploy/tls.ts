import { spawn } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { request, type RequestOptions } from 'node:https'
import { text } from 'node:stream/consumers'
import type { Test } from 'tap'
import { cert, key } from '../support/certificate.js'
import { newFolder } from '../support/folder.js'
import { examplesIn } from '../support/markdown.js'
import { freePort } from '../support/postgres.js'
import { until } from '../support/until.js'

/** The programs of the configurations in docs/production.md, each with its arguments and what it needs on this machine. */
const programs = {
  nginx: {
    language: 'nginx',
    args: (folder: string) => ['-p', folder, '-c', `${folder}/config`, '-g', `daemon off; pid ${folder}/pid; error_log ${folder}/errors;`],
    adapt: (config: string, { folder, plain, secure }: Place) => `
      events {}
      http {
        access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
        ${config
          .replace('listen 443', `listen 127.0.0.1:${secure}`)
          .replace('listen 80', `listen 127.0.0.1:${plain}`)
          .replace(/ssl_certificate .+;/, `ssl_certificate ${folder}/cert.pem;`)
          .replace(/ssl_certificate_key .+;/, `ssl_certificate_key ${folder}/key.pem;`)}
      }`
  },
  caddy: {
    language: 'caddyfile',
    args: (folder: string) => ['run', '--adapter', 'caddyfile', '--config', `${folder}/config`],
    adapt: (config: string, { folder, plain, secure }: Place) => `
      {
        admin off
        default_bind 127.0.0.1
        http_port ${plain}
        https_port ${secure}
        storage file_system ${folder}
      }
      ${config.replace('{', `{\n tls ${folder}/cert.pem ${folder}/key.pem`)}`
  }
}

interface Place { folder: string, plain: number, secure: number }

/** Starts a proxy with the configuration in docs/production.md, with other ports and a certificate for localhost. */
export async function startProxy (t: Test, program: keyof typeof programs, servicePort: number) {
  const { language, args, adapt } = programs[program]
  const folder = newFolder(t)
  chmodSync(folder, 0o755) // as root, nginx handles requests as another user
  const [plain, secure] = [await freePort(), await freePort()]
  const config = examplesIn('docs/production.md').find(example => example.language === language)?.code ?? ''
  const adapted = config.replaceAll('items.example.com', 'localhost').replace('127.0.0.1:3000', `127.0.0.1:${servicePort}`)
  writeFileSync(`${folder}/config`, adapt(adapted, { folder, plain, secure }))
  writeFileSync(`${folder}/cert.pem`, cert)
  writeFileSync(`${folder}/key.pem`, key)
  const proxy = spawn(program, args(folder), { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, HOME: folder } })
  let errors = ''
  proxy.stderr.on('data', chunk => { errors += chunk })
  t.teardown(() => proxy.kill('SIGTERM'))
  await until(async () => {
    if (proxy.exitCode !== null) throw new Error(errors)
    return await fetch(`http://localhost:${plain}`, { redirect: 'manual' }).then(() => true, () => false)
  })
  return { plain, secure }
}

/** Sends a request over TLS to localhost, from one of the loopback addresses, and checks the certificate. */
export function sendSecurely (port: number, localAddress: string, { body, headers, ...options }: RequestOptions & { body?: string }) {
  return new Promise<{ status?: number, body: string }>((resolve, reject) => {
    request({ ...options, host: '127.0.0.1', port, servername: 'localhost', ca: cert, localAddress, headers: { ...headers, host: `localhost:${port}` } }, async response => {
      resolve({ status: response.statusCode, body: await text(response) })
    }).on('error', reject).end(body)
  })
}
