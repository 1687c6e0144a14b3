import '../stress/faults.test.js'
import '../stress/rolling.test.js'
