export interface Sent {
  method: string
  target: string
  headers: Record<string, string>
  body?: Buffer
}

/** A request as a shell command. */
export function curl (url: string, { method, target, headers, body }: Sent) {
  const quoted = (text: string) =>
    `$'${text.replaceAll(/['\\]|[^\x20-\x7e]/g,
      character => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`)}'`
  return [
    `curl --include --path-as-is --globoff --request ${method} ${quoted(url + target)}`,
    ...method === 'HEAD' ? ['--head'] : [],
    ...Object.entries(headers).map(([name, value]) =>
      `--header ${quoted(value.trim() ? `${name}: ${value}` : `${name};`)}`),
    ...body
      ? [/^[\x20-\x7e]*$/.test(String(body))
          ? `--data-binary ${quoted(String(body))}`
          : `--data-binary @<(base64 --decode <<< ${body.toString('base64')})`]
      : []
  ].join(' ')
}
