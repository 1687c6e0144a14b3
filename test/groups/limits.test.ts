import '../security/bodies.test.js'
import '../security/hostile.test.js'
import '../security/memory.test.js'
import '../security/times.test.js'
