import '../http/caching.test.js'
import '../http/errors.test.js'
import '../http/pagination-and-creation.test.js'
