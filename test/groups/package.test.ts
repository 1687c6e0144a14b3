import '../operations/metrics.test.js'
import '../package/package.test.js'
import '../package/start.test.js'
import '../patterns.test.js'
