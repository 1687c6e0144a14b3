import { hash } from 'node:crypto'

/** The SHA-256 digest of a text. */
export function digestOf (text: string) {
  return hash('sha256', text, 'base64url')
}
