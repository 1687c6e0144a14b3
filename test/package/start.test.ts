import { test } from 'tap'
import { start } from '../support/process.js'

test('npm start starts the service with its pages, and SIGTERM stops it', async t => {
  const service = start(t, { DOCS: 'true' }, { npm: true })
  t.equal(await (await fetch(`${await service.url}/api/items`)).text(), '[{"id":1,"name":"Lamp","price":42.5}]')
  for (const page of ['/docs', '/docs/static/swagger-ui-bundle.js', '/redoc', '/redoc/redoc.standalone.js']) {
    t.equal((await fetch(await service.url + page)).status, 200, page)
  }
  service.process.kill('SIGTERM')
  await service.exit
  t.match(service.output(), 'closing on SIGTERM')
})
