import { Type } from '@sinclair/typebox'
import { defineCollection } from '../../src/index.js'

export const Order = Type.Object({
  id: Type.Integer(),
  item_id: Type.Integer(),
  quantity: Type.Integer({ minimum: 1 }),
  note: Type.Optional(Type.String())
})

export const orders = defineCollection({
  name: 'orders',
  schema: Order,
  seed: [
    { id: 1, item_id: 1, quantity: 2 }, { id: 2, item_id: 1, quantity: 1, note: 'x' },
    { id: 3, item_id: 9, quantity: 9 }
  ]
})

/** A collection with fields that clients cannot set. */
export const accounts = defineCollection({
  name: 'accounts',
  schema: Type.Object({
    id: Type.Integer({ readOnly: true }),
    name: Type.String(),
    role: Type.String({ readOnly: true, default: 'guest' }),
    since: Type.Optional(Type.String({ readOnly: true })),
    place: Type.Optional(Type.Object({
      city: Type.String({ default: 'Rome' }),
      area: Type.String({ default: 'centre' })
    }))
  }, { additionalProperties: false }),
  seed: [{ id: 1, name: 'ada', role: 'guest', since: 'then' }]
})
