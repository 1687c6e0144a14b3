import fc from 'fast-check'

/** Any character. The unit `binary` of fast-check is the same, but takes more than a second to create. */
export const character = fc.nat(0x10f7ff).map(
  n => String.fromCodePoint(n < 0xd800 ? n : n + 0x800),
  text => indexOf(typeof text === 'string' ? text : '')
)

function indexOf (text: string) {
  const code = text.codePointAt(0)
  if (code === undefined || String.fromCodePoint(code) !== text) throw new Error('It is not one character')
  return code < 0xd800 ? code : code - 0x800
}
