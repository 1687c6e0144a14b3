import { register } from 'node:module'

// Replaces ts-node, which tap uses and which loads TypeScript twice in each process. The setting
// TAP_TYPE_STRIP_ONLY in package.json makes tap leave it out.
register('./typescript-hooks.js', import.meta.url)
