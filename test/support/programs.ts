import { spawnSync } from 'node:child_process'

/** The programs that tests start and npm does not provide, and their Debian packages. */
const packages = {
  'redis-server': 'redis-server',
  nginx: 'nginx-light',
  haproxy: 'haproxy',
  pgbouncer: 'pgbouncer',
  patroni: 'patroni',
  etcd: 'etcd-server',
  caddy: 'caddy',
  promtool: 'prometheus',
  chromium: 'chromium',
  'systemd-analyze': 'systemd'
}

/** The reason to skip what needs a program, if the machine does not have it. */
export function without (program: keyof typeof packages) {
  return spawnSync(program, ['--version']).error
    ? `${program} is not installed (Debian: apt-get install ${packages[program]})`
    : false
}
