import asyncHooks from 'node:async_hooks'
import { register, syncBuiltinESMExports } from 'node:module'

// Replaces ts-node, which tap uses and which loads TypeScript twice in each process. The setting
// TAP_TYPE_STRIP_ONLY in package.json makes tap leave it out.
register('./typescript-hooks.js', import.meta.url)

// tap follows every promise and callback, so that it can tell which test has an error that nobody catches. This takes a tenth of the
// time. Without it, such an error ends the process, and so its test file fails.
const { createHook } = asyncHooks
asyncHooks.createHook = hooks => hooks.destroy ? { enable () {}, disable () {} } : createHook(hooks)
syncBuiltinESMExports()
