import { writeFileSync } from 'node:fs'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { invalidBody } from '../support/helper.js'
import { serveShop, shop, type Send } from './shop.js'

/** Two members, a tool, and three rentals. */
async function fill (send: Send) {
  await send('POST', '/members/batch', [{ email: 'a' }, { email: 'b' }])
  const { body: tool } = await send('POST', '/tools', { name: 'saw' })
  const { body: rentals } = await send('POST', '/rentals/batch',
    [{ member_id: 2, tool_id: tool.id }, { member_id: 1 }, { member_id: 2 }])
  return { tool, rentals, members: [{ id: 1, email: 'a' }, { id: 2, email: 'b' }] }
}

onEveryEngine((t, address) => {
  t.test('expand adds the records that others refer to', async t => {
    const send = serveShop(t, address())
    const { tool, rentals, members } = await fill(send)
    t.same((await send('GET', '/rentals?expand=member_id,tool_id&limit=100')).body, [
      { ...rentals[0], expand: { member_id: members[1], tool_id: tool } },
      { ...rentals[1], expand: { member_id: members[0] } },
      { ...rentals[2], expand: { member_id: members[1] } }
    ])
    t.same((await send('GET', '/rentals/1?expand=tool_id')).body, { ...rentals[0], expand: { tool_id: tool } })
    t.same((await send('GET', '/rentals?expand=tool_id&limit=1&sort=-id')).body, [{ ...rentals[2], expand: {} }])
    const { headers } = await send('GET', '/rentals?expand=member_id&limit=2')
    t.match(headers.link, /expand=member_id&limit=2&after=/)
  })

  t.test('the ETag is that of what is sent', async t => {
    const send = serveShop(t, address())
    await fill(send)
    const etag = async () => String((await send('GET', '/rentals/1?expand=member_id')).headers.etag)
    const first = await etag()
    t.match(first, /^W\//)
    t.equal((await send('GET', '/rentals/1?expand=member_id', undefined, { 'if-none-match': first })).status, 304)
    await send('PATCH', '/members/2', { email: 'c' })
    t.not(await etag(), first)
  })

  t.test('a wrong expand is a 400 that names it', async t => {
    const send = serveShop(t, address())
    await fill(send)
    const message = 'must be references separated by commas, of member_id, tool_id'
    for (const expand of ['due', 'member_id,', '', 'member_id;tool_id']) {
      t.same((await send('GET', `/rentals/1?expand=${expand}`)).body, invalidBody('query', ['/expand', message]),
        expand)
    }
    t.same((await send('GET', '/rentals?expand=member_id')).body,
      invalidBody('query', ['/limit', 'is required with expand']))
    t.same((await send('GET', '/members/1?expand=member_id')).body,
      invalidBody('query', ['/expand', 'is not a known parameter']))
    t.equal((await send('GET', '/rentals/9?expand=member_id')).status, 404)
  })

  t.test('a token that may not read the other collection gets 403', async t => {
    const tokens = `${newFolder(t)}/tokens`
    writeFileSync(tokens, 'all\nsome rentals:read tools:read\n')
    const send = serveShop(t, address(), shop, { AUTH_TOKENS_FILE: tokens })
    const get = (url: string, token: string) => send('GET', url, undefined, { authorization: `Bearer ${token}` })
    await send('POST', '/members', { email: 'a' }, { authorization: 'Bearer all' })
    await send('POST', '/rentals', { member_id: 1 }, { authorization: 'Bearer all' })
    t.same((await get('/rentals/1?expand=member_id', 'all')).body.expand, { member_id: { id: 1, email: 'a' } })
    t.same((await get('/rentals/1?expand=tool_id', 'some')).body.expand, {})
    for (const url of ['/rentals/1?expand=member_id', '/rentals?limit=1&expand=tool_id,member_id']) {
      const { status, body } = await get(url, 'some')
      t.same([status, body], [403, { detail: 'The bearer token does not have the scope members:read' }])
    }
  })
})
