/**
 * What the page of @fastify/swagger-ui lacks: a viewport and one column less for phones, a dark background in dark mode, and
 * colors with a contrast of at least 4.5 between texts and their background.
 */
export const head = `<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
@media (max-width: 640px) { .swagger-ui .response-col_links { display: none } }
@media (prefers-color-scheme: dark) { body:not(:has(.swagger-ui)) { background: #1c2022 } }
html.dark-mode body { background: none }
html.dark-mode .swagger-ui {
  .header-col { color: #dfe3e6 }
  .parameter__name.required::after { color: #ffa0a0 !important }
  .opblock-put .opblock-section-header, .opblock-patch .opblock-section-header { background: #5c3a28 !important }
}
.swagger-ui code span[style*="rgb(211, 99, 99)"] { color: #f2a0a0 !important }
html:not(.dark-mode) .swagger-ui {
  .topbar .download-url-wrapper .download-url-button { background: #47762e }
  .info .title small, .download-contents { background: #5c6270 }
  .info .title small.version-stamp { background: #4f6f00 }
  .info a, .info .link, .info .url { color: #1b62b3 }
  .btn.authorize { color: #177a4e }
  .btn.authorize svg { fill: #177a4e }
  .btn.cancel { color: #c32020 }
  .btn.execute, .opblock-get .opblock-summary-method { background: #1b62b3 }
  .opblock-post .opblock-summary-method { background: #177a4e }
  .opblock-put .opblock-summary-method { background: #945700 }
  .opblock-patch .opblock-summary-method { background: #12766a }
  .opblock-delete .opblock-summary-method { background: #c32020 }
  .parameter__in, .json-schema-2020-12-expand-deep-button { color: #5c5c5c }
  .parameter__name.required span, .parameter__name.required::after, .json-schema-2020-12__title::after { color: #b30000 !important }
  .json-schema-2020-12__constraint--string { background: #805a00 }
  input[disabled], input::placeholder { color: #666 }
  .renderedMarkdown code { color: #6f00d0 }
  .response-control-media-type__accept-message { color: #006400 }
}
</style>
`
