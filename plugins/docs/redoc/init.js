/* global document, location, matchMedia, Redoc */

/** The colors in dark mode. */
const dark = {
  colors: {
    primary: { main: '#9ab0ff' },
    success: { main: '#7ad086' },
    warning: { main: '#ffc14d' },
    error: { main: '#ff8a80' },
    text: { primary: '#dfe3e6', secondary: '#a9b1b8' },
    border: { dark: '#3b444b', light: '#3b444b' },
    gray: { 50: '#262c30', 100: '#2c3338' },
    responses: {
      success: { backgroundColor: '#1d3324' },
      error: { backgroundColor: '#3b2426' }
    }
  },
  schema: { nestedBackground: '#23292d', linesColor: '#56626b' },
  typography: { code: { color: '#ff8a80', backgroundColor: '#2c3338' } },
  sidebar: { backgroundColor: '#16191b', textColor: '#dfe3e6', activeTextColor: '#9ab0ff' },
  rightPanel: {
    backgroundColor: '#16191b',
    servers: { overlay: { backgroundColor: '#262c30', textColor: '#dfe3e6' }, url: { backgroundColor: '#1c2022' } }
  },
  codeBlock: { backgroundColor: '#0f1214' },
  fab: { backgroundColor: '#262c30', color: '#9ab0ff' }
}

const url = new URL(document.currentScript.dataset.document, location.href)
fetch(url).then(response => response.json()).then(api => {
  // Redoc would show relative addresses as they are.
  for (const server of api.servers) server.url = new URL(server.url, url).href.replace(/\/$/, '')
  const theme = matchMedia('(prefers-color-scheme: dark)').matches ? dark : {}
  Redoc.init(api, { theme, sanitize: true, downloadUrls: [{ url: url.href }] }, document.getElementById('redoc'))
})
