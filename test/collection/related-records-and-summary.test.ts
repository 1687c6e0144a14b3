import { writeFileSync } from 'node:fs'
import fc from 'fast-check'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { invalidBody } from '../support/helper.js'
import { type Send, serveShop, shop } from './shop.js'

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

const payments = [
  { amount: 100, method: 'card', paid_at: '2026-01-31T23:30:00-01:00', day: '2026-01-02', rate: 0.5, open: true },
  { amount: 250, method: 'cash', paid_at: '2026-01-02T10:00:00+02:00', day: '2026-01-31' },
  { amount: -30, method: 'card', paid_at: '2025-12-31T00:00:00Z', day: '2025-12-31', rate: -1e300, open: false },
  { amount: 7, method: null }
]

onEveryEngine((t, address) => {
  t.test('a summary counts and adds, and finds least and greatest values', async t => {
    const send = serveShop(t, address())
    t.same((await send('GET', '/payments/summary')).body, [{ count: 0 }])
    t.same((await send('GET', '/payments/summary?sum=amount&min=day')).body, [{ sum: { amount: 0 }, min: {} }])
    t.same((await send('GET', '/payments/summary?group=method')).body, [])
    await send('POST', '/payments/batch', payments)
    for (const [query, expected] of [
      ['', [{ count: 4 }]],
      ['?sum=amount', [{ sum: { amount: 327 } }]],
      [
        '?count=true&sum=amount&min=paid_at&max=rate&max=open',
        [{ count: 4, sum: { amount: 327 }, min: { paid_at: '2025-12-31T00:00:00Z' }, max: { rate: 0.5, open: true } }]
      ],
      [
        '?group=method&sum=amount',
        [
          { method: null, sum: { amount: 7 } }, { method: 'card', sum: { amount: 70 } },
          { method: 'cash', sum: { amount: 250 } }
        ]
      ],
      [
        '?group=paid_at.month&amount.gt=0',
        [
          { 'paid_at.month': null, count: 1 }, { 'paid_at.month': '2026-01', count: 1 },
          { 'paid_at.month': '2026-02', count: 1 }
        ]
      ],
      [
        '?group=paid_at.year&min=method',
        [
          { 'paid_at.year': null, min: {} }, { 'paid_at.year': '2025', min: { method: 'card' } },
          { 'paid_at.year': '2026', min: { method: 'card' } }
        ]
      ],
      [
        '?group=day.month&sum=amount&id.lte=3',
        [{ 'day.month': '2025-12', sum: { amount: -30 } }, { 'day.month': '2026-01', sum: { amount: 350 } }]
      ],
      ['?group=paid_at&paid_at.lt=2026-01-02T08:00:00Z', [{ paid_at: '2025-12-31T00:00:00Z', count: 1 }]],
      [
        '?group=open&max=amount',
        [
          { open: null, max: { amount: 250 } }, { open: false, max: { amount: -30 } },
          { open: true, max: { amount: 100 } }
        ]
      ],
      ['?group=rate&rate.exists=true', [{ rate: -1e300, count: 1 }, { rate: 0.5, count: 1 }]]
    ] as const) t.same((await send('GET', `/payments/summary${query}`)).body, expected, query)
    const { headers } = await send('GET', '/payments/summary')
    t.equal((await send('GET', '/payments/summary', undefined, { 'if-none-match': String(headers.etag) })).status, 304)
  })

  t.test('a sum is exact, or an error', async t => {
    const send = serveShop(t, address())
    const largest = 2 ** 53 - 1
    await send('POST', '/payments/batch',
      [
        { amount: largest }, { amount: largest }, { amount: -largest },
        ...Array.from({ length: 997 }, () => ({ amount: largest, method: 'cash' }))
      ])
    t.same((await send('GET', '/payments/summary?sum=amount&method.exists=false')).body, [{ sum: { amount: largest } }])
    t.same((await send('GET', '/payments/summary?sum=amount')).body,
      invalidBody('query', ['/sum', 'of amount is too large to be exact']))
    t.same((await send('GET', '/payments/summary?group=method&sum=amount&id.lte=4')).body,
      [{ method: null, sum: { amount: largest } }, { method: 'cash', sum: { amount: largest } }])
  })

  t.test('a summary has at most 1,000 groups', async t => {
    const send = serveShop(t, address())
    await send('POST', '/payments/batch', Array.from({ length: 1000 }, (_, amount) => ({ amount })))
    t.equal((await send('GET', '/payments/summary?group=amount')).body.length, 1000)
    await send('POST', '/payments', { amount: -1 })
    t.same((await send('GET', '/payments/summary?group=amount')).body,
      invalidBody('query', ['/group', 'has more than 1000 values']))
  })

  t.test('a wrong parameter is a 400 that names it', async t => {
    const send = serveShop(t, address())
    for (const [query, path, message] of [
      ['sum=rate', '/sum', 'must be one of amount'],
      ['group=none', '/group', /^must be one of amount, method, paid_at, paid_at\.day, paid_at\.month/],
      ['group=amount.day', '/group', /^must be one of/], ['count=yes', '/count', 'must be true or false'],
      ['limit=1', '/limit', 'is not a known parameter'],
      ['amount.gt=x', '/amount.gt', 'must be an integer'], ['min=day&min=day', '/min', 'must not have duplicate items']
    ] as const) {
      t.match((await send('GET', `/payments/summary?${query}`)).body.errors, [{ in: 'query', path, message }], query)
    }
    t.equal((await send('POST', '/payments/summary', {})).status, 405)
    t.equal((await send('GET', '/members/summary')).status, 400, 'a collection without filters has none')
  })

  t.test('random summaries have the results of a model', async t => {
    const send = serveShop(t, address())
    const records = fc.sample(randomPayment, { numRuns: 300, seed: 7 }) as Payment[]
    await send('POST', '/payments/batch', records)
    for (const { group, min, max, below } of fc.sample(randomSummary, { numRuns: 60, seed: 3 })) {
      const computed = `count=true&sum=amount&min=${min}&max=${max}${group ? `&group=${group}` : ''}`
      const { body } = await send('GET', `/payments/summary?${computed}&amount.lt=${below}`)
      t.same(body, summaryOf(records.filter(({ amount }) => amount < below), { group, min, max }), computed)
    }
  })
})

interface Payment {
  amount: number
  method?: string
  day?: string
  rate?: number
  open?: boolean
}

const names = ['amount', 'method', 'day', 'rate', 'open'] as const
const randomPayment = fc.record({
  amount: fc.integer({ min: -5, max: 5 }),
  method: fc.constantFrom('card', 'cash'),
  day: fc.constantFrom('2025-12-31', '2026-01-01', '2026-01-02', '2026-02-01'),
  rate: fc.constantFrom(0.1, 1e21, -2.5),
  open: fc.boolean()
}, { requiredKeys: ['amount'] })
const randomSummary = fc.record({
  group: fc.option(fc.constantFrom(...names, 'day.month', 'day.year'), { nil: undefined }),
  min: fc.constantFrom(...names),
  max: fc.constantFrom(...names),
  below: fc.integer({ min: -4, max: 6 })
})

interface Summary {
  group: string | undefined
  min: keyof Payment
  max: keyof Payment
}

/** A summary, as simple as possible. */
function summaryOf (records: Payment[], { group, min, max }: Summary) {
  const [field = '', period = ''] = (group ?? '').split('.')
  const length = { month: 7, year: 4 }[period]
  const groupOf = (record: Payment) => {
    const value: unknown = Reflect.get(record, field) ?? null
    return length && value !== null ? String(value).slice(0, length) : value
  }
  const groups = group ? inOrder([...new Set(records.map(groupOf))]) : [null]
  return groups.map(value => {
    const own = group ? records.filter(record => groupOf(record) === value) : records
    const valuesOf = (name: keyof Payment) => own.map(record => record[name]).filter(value => value !== undefined)
    const [least, greatest] = [inOrder(valuesOf(min))[0], inOrder(valuesOf(max)).at(-1)]
    return {
      ...group && { [group]: value },
      count: own.length,
      sum: { amount: own.reduce((sum, { amount }) => sum + amount, 0) },
      min: least === undefined ? {} : { [min]: least },
      max: greatest === undefined ? {} : { [max]: greatest }
    }
  })
}

/** Null is the first value. */
function inOrder (values: unknown[]) {
  const isAfter = (one: any, other: any) => other === null ? one !== null : one !== null && one > other
  return values.sort((one, other) => Number(isAfter(one, other)) - Number(isAfter(other, one)))
}
