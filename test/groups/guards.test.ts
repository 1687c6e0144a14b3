import '../guards/auth.test.js'
import '../guards/cors-and-headers.test.js'
import '../guards/cross-origin-protection.test.js'
import '../guards/rate-limit.test.js'
