// Sends the spans of the service to an OpenTelemetry collector: node --import ./tracing.js dist/src/server.js. Needs the packages below.
import { register } from 'node:module'
import FastifyOtelInstrumentation from '@fastify/otel'
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http'
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg'
import { NodeSDK } from '@opentelemetry/sdk-node'

register('@opentelemetry/instrumentation/hook.mjs', import.meta.url)
const fastify = new FastifyOtelInstrumentation({ registerOnInitialization: true })
new NodeSDK({ instrumentations: [new HttpInstrumentation(), new PgInstrumentation(), fastify] }).start()
