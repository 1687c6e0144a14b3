import '../docs/docs.test.js'
import '../guards/in-browser.test.js'
