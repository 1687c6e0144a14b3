import { collection } from 'fastify-items-users'

export default collection
export const autoConfig = { name: 'orders', seed: [{ id: 9 }], schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' } } } }
