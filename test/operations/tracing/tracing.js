// Traces the service, as its operators would set it up, and prints each span when it ends.
import { register } from 'node:module'
import FastifyOtelInstrumentation from '@fastify/otel'
import { registerInstrumentations } from '@opentelemetry/instrumentation'
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http'
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg'
import { NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'

register('@opentelemetry/instrumentation/hook.mjs', import.meta.url)

const exporter = {
  export (spans, done) {
    for (const span of spans) {
      const { name, attributes, instrumentationScope, parentSpanContext } = span
      const { traceId, spanId } = span.spanContext()
      console.error(JSON.stringify({ name, attributes, scope: instrumentationScope.name, traceId, spanId, parentId: parentSpanContext?.spanId }))
    }
    done({ code: 0 })
  },
  async shutdown () {}
}

new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register()

registerInstrumentations({
  instrumentations: [new HttpInstrumentation(), new PgInstrumentation(), new FastifyOtelInstrumentation({ registerOnInitialization: true })]
})
