import '../guards/scopes.test.js'
import '../src/requests.test.js'
