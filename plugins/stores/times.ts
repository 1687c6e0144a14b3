const dateTime = /^(\d{4})-(\d\d)-(\d\d)[Tt\s](\d\d):(\d\d):(\d\d(?:\.\d+)?)(?:[Zz]|([+-]\d\d):?(\d\d)?)$/

/**
 * A `date-time` in UTC, in a form whose order as text is that of the times: `2026-11-19T10:00:00.50+02:00` becomes
 * `2026-11-19T08:00:00.5`. Another text stays as it is.
 */
export function indexTime (text: string) {
  const match = dateTime.exec(text)
  if (!match) return text
  const [, year, month, day, hour, minute, seconds = '', offsetHours = '+00', offsetMinutes = '00'] = match
  const sign = offsetHours.startsWith('-') ? -1 : 1
  const time = new Date(0)
  time.setUTCFullYear(Number(year), Number(month) - 1, Number(day))
  time.setUTCHours(Number(hour) - Number(offsetHours), Number(minute) - sign * Number(offsetMinutes))
  const withoutZeros = seconds.includes('.') ? seconds.replace(/\.?0+$/, '') : seconds
  return time.toISOString().replace(/\d\d\.\d+Z$/, withoutZeros)
}
