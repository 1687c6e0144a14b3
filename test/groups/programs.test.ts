import '../programs/pgbouncer.test.js'
import '../programs/proxies.test.js'
import '../programs/redis.test.js'
