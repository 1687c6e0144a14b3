import '../stores/engines.test.js'
import '../stores/outages.test.js'
