import '../schemas-on-engines.test.js'
import '../stores/databases.test.js'
import '../stores/processes.test.js'
import '../stores/records.test.js'
