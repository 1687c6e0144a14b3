// Imports the document at a URL into Postman, sends every request, and prints their names and statuses: node postman.js URL
import { promisify } from 'node:util'
import newman from 'newman'
import converter from 'openapi-to-postmanv2'

const document = await (await fetch(process.argv[2])).text()
const { result, reason, output } = await promisify(converter.convertV2)({ type: 'string', data: document }, { parametersResolution: 'Example', requestParametersResolution: 'Example' })
if (!result) throw new Error(reason)
const { run } = await promisify(newman.run)({ collection: output[0].data, reporters: [] })
if (run.failures.length > 0) throw run.failures[0].error
for (const { item, response } of run.executions) console.log(item.name, response.code)
