import '../stores/migrations.test.js'
import '../stores/postgres.test.js'
