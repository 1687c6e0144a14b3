import '../stores/lists.test.js' // it waits a lot, so it starts with the groups, before most files
