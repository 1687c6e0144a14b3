import { createClient, etag } from 'fastify-items-users/client'

const tokens = ['old', 'sesame']
const token = async () => tokens.length > 1 ? tokens.shift() : tokens[0]
const { items, users } = createClient(process.argv[2], { token, headers: { 'X-Tenant': 'acme' }, cache: new Map() })

const item = await items.create({ id: 2, name: 'Teapot 🫖', price: 24.5 })
const names = []
for await (const { name } of items.list({ pageSize: 1 })) names.push(name)
const wrongTag = await users.delete(1, { ifMatch: '"x"' }).catch(({ status }) => status)
await users.delete(1, { ifMatch: etag(await users.get(1)) })
const missing = await users.get(1).catch(({ name, status, detail }) => ({ name, status, detail }))
const invalid = await items.create({ name: 'x', price: 1 }).catch(({ errors }) => errors)
console.log(JSON.stringify({ item, names, wrongTag, missing, invalid }))
