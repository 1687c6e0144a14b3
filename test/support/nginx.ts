import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import { newFolder } from './folder.js'
import { freePort } from './postgres.js'

/** Starts nginx on a free port, in its own folder. It is stopped when the test ends. */
export async function startNginx (t: Pick<Test, 'teardown'>, configure: (port: number, folder: string) => string) {
  const folder = newFolder(t)
  chmodSync(folder, 0o755) // as root, nginx handles requests as another user
  const port = await freePort()
  const log = `${folder}/errors`
  writeFileSync(`${folder}/nginx.conf`, configure(port, folder))
  const nginx = spawn('nginx',
    ['-p', folder, '-c', `${folder}/nginx.conf`, '-g', `daemon off; pid ${folder}/pid; error_log ${log} warn;`],
    { stdio: 'ignore' })
  const exit = once(nginx, 'exit')
  t.teardown(() => {
    nginx.kill('SIGTERM')
    return exit // until then, nginx writes to the folder
  })
  return { nginx, port, log }
}

/** The directives that nginx needs to run in its own folder. */
export function ownPaths (folder: string) {
  return `access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;`
}
