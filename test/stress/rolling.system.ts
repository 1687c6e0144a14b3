import { test } from 'tap'
import { onPostgres } from '../support/databases.js'
import { history } from './history.js'
import { violationOf, type Operation } from './linearizable.js'

onPostgres('what clients see during kills and a failover is possible with one list', async t => {
  t.match(await history(t, { operations: 60, clients: 5, kills: 1 }), { kills: 1 })
})

test('a history that is not possible with one list is found, and shortened', async t => {
  const append = { kind: 'append', id: 1, name: 'a', sent: 1, answered: 2 } as const
  const read = { kind: 'first', id: 1, sent: 3, answered: 4, result: 'a' } as const
  const lost = { kind: 'first', id: 1, sent: 5, answered: 6, result: undefined } as const
  const removal = { kind: 'removeFirst', id: 1, sent: 2, answered: Infinity } as const
  const update = { kind: 'update', id: 1, name: 'b', sent: 2, answered: Infinity } as const
  const renamed = { kind: 'all', id: 1, sent: 5, answered: 6, result: ['b', 'c'] } satisfies Operation
  const second = { ...append, name: 'c', sent: 3, answered: 4 }
  t.equal(violationOf([append, read]), undefined)
  t.equal(violationOf([append, update, second, renamed]), undefined, 'an update keeps the place of the record')
  t.equal(violationOf([append, update, second, { ...renamed, result: ['a', 'c'] }]), undefined, 'an update without a response may take effect later')
  t.ok(violationOf([append, { ...update, answered: 3, result: true }, second, { ...renamed, result: ['a', 'c'] }]), 'a lost update')
  t.ok(violationOf([append, { ...update, answered: 3, result: true }, second, { ...renamed, result: ['c', 'b'] }]), 'an update that moves the record')
  t.ok(violationOf([append, { ...update, sent: 3, answered: 4, result: false }]), 'an update that does not find the record')
  t.equal(violationOf([{ ...update, answered: 3, result: false }, { ...update, sent: 4 }, { ...append, sent: 5, answered: 6 }]), undefined, 'an update of nothing')
  t.equal(violationOf([append, read, lost, removal]), undefined, 'a removal without a response may take effect later')
  t.equal(violationOf([append, read, { ...removal, answered: 5, isOver: true }, lost]), undefined, 'a removal that is over may have taken effect')
  t.equal(violationOf([append, { ...removal, answered: 3, isOver: true }, read]), undefined, 'or not')
  t.ok(violationOf([append, { ...removal, answered: 3, isOver: true }, { ...read, sent: 4, answered: 5 }, { ...lost, sent: 6, answered: 7 }]), 'but not later')
  t.same(violationOf([append, read, lost, { ...read, sent: 7, answered: 8 }]), [append, lost])
  t.ok(violationOf([append, { ...append, name: 'b', sent: 3, answered: 4 }, { kind: 'all', id: 1, sent: 5, answered: 6, result: ['b', 'a'] }]))
})
