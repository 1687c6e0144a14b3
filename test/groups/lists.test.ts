import '../stores/lists.test.js'
import '../stress/load.test.js'
