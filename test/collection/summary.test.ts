import { onEveryEngine } from '../support/engines.js'
import { invalidBody } from '../support/helper.js'
import { serveShop } from './shop.js'

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
})
