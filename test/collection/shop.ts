import type { Test } from 'tap'
import { writeFileSync } from 'node:fs'
import { build } from '../support/helper.js'
import { newFolder } from '../support/folder.js'

const string = { type: 'string' }
const integer = { type: 'integer' }
const object = (properties: object, required: string[] = []) => ({
  type: 'object',
  required: ['id', ...required],
  properties: { id: integer, ...properties }
})

/** A shop that rents tools, as a collections file. */
export const shop = {
  items: null,
  users: null,
  members: { schema: object({ email: string }, ['email']), unique: ['email'] },
  tools: { schema: { ...object({ name: string }), properties: { id: string, name: string } } },
  rentals: {
    schema: object({ member_id: integer, tool_id: string, due: { type: 'string', format: 'date-time' } },
      ['member_id']),
    references: { member_id: 'members', tool_id: 'tools' },
    filters: ['due'],
    timestamps: true
  },
  payments: {
    schema: object({
      amount: integer,
      method: { enum: ['card', 'cash', null] },
      paid_at: { type: 'string', format: 'date-time' },
      day: { type: 'string', format: 'date' },
      rate: { type: 'number' },
      open: { type: 'boolean' }
    },
    ['amount']),
    filters: ['amount', 'method', 'paid_at', 'day', 'rate', 'open']
  }
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
export type Send = (method: Method, url: string, payload?: object, headers?: Record<string, string>) =>
Promise<{ status: number, body: any, headers: Record<string, unknown> }>

/** The service with these collections. */
export function serveShop (t: Test, store: string, collections: object = shop, env: NodeJS.ProcessEnv = {}): Send {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify(collections))
  const app = build(t, { DATABASE_URL: store, COLLECTIONS_FILE: file, ...env })
  return async (method, url, payload, headers = {}) => {
    const response = await app.inject({ method, url: `/api${url}`, ...payload && { payload }, headers })
    return { status: response.statusCode, body: response.body && response.json(), headers: response.headers }
  }
}
