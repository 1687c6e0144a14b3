import '../stress/load.test.js'
import '../stress/schemas.test.js'
