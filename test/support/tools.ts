import { install } from './install.js'

/** Why a check with large tools is skipped: `npm test` has to be quick, so that only `npm run test:tools` runs them. */
export const withoutTools = process.env.TOOLS === 'true' ? undefined : 'only npm run test:tools runs them'

/** Installs large tools. If they are not needed or cannot be installed, it returns the reason. */
export async function installTools (folder: string) {
  return withoutTools ?? install(folder)
}
