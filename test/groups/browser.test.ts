import '../deploy/deploy.test.js'
import '../docs/docs.test.js'
import '../guards/in-browser.test.js'
