import fc from 'fast-check'
import { test } from 'tap'
import { isLinear } from '../plugins/schema/patterns.js'
import { match, patterns, sizeOf } from './support/patterns.js'
import { seedOf } from './stress/seed.js'

const { seed = 5 } = seedOf()

test('patterns that can take super-linear time are found', async t => {
  for (const pattern of [
    '', 'x', '[a-z]+', '\\S', '^[a-z]+$', '^\\d+(\\.\\d+)?$', '^(?=.*\\d)(?!x)(?=.*[a-z]).{8,}$', '^\\p{L}+$', '^\\+?[1-9]\\d{1,14}$', '^[A-Z]{2}[A-Z0-9]{9}\\d$', '^[a-z0-9]+(?:-[a-z0-9]+)*$',
    '^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$', '^(\\d{1,3}\\.){3}\\d{1,3}$', '^[^@\\s]+@[^@\\s.]+(\\.[^@\\s.]+)+$', '^(open|paid)$', '^[a-z]{1,3}[a-z]{1,3}$', '^a{200}$', '\\bfoo\\b', '^x?y?z?$', '^https?://[^\\s/]+(/\\S*)?$',
    '^\\d{4}-\\d{2}$', '^[A-Z]{2,3}-\\d+$', '^([a-z]+-)*[a-z]+$', '^[^@\\s]+@[^@\\s]+$', '^.{0,10000}$', '[0-9a-f]{64}', '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$', '\\d+(,\\d+)*', '^(a+b?)*', '^a{0}$',
    '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$', '^-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?$', '^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$', '^[\\p{L}\\p{M}\\s-]{1,100}$'
  ]) t.ok(isLinear(pattern), pattern)
  for (const pattern of [
    'a*b', '\\s+$', '(a+)+$', '^(a|a)*$', '^(a*)*$', '^(ab)*(ab)*$', '^\\S+@\\S+$', '^(a(b?|c?))*$', '^(a|aa)+$', '^(a?){30}a{30}$', '^(\\w+\\s?)*$', '^(a{1,20}){1,20}$', '^(a|b|ab)*c$', '^(?=a*a*b)', '^(\u{20000}|\u{20000})*$',
    '^(a|[a-c])*$', '^(\\w+)\\s\\1$', '(?<=a)b', `^${'[a-f]{0,9}x?'.repeat(60)}$`,
    '^((a+)+b)?', '^(?:a*b|a)+', `^${'a{0,8}'.repeat(8)}b$`, '^\\d*\\.?\\d*$', '^(a{1,1500})+$', `^${'(?:a?|b?)'.repeat(9)}$`, '^(?:.*a.{20}|b)*$', '^(\\p{Script=Gothic}|[\\u{10340}-\\u{10341}])*$', '^(?i:a)$'
  ]) t.notOk(isLinear(pattern), pattern)
})

test('a pattern that is accepted tries each of its characters a limited number of times at each character of a text', async t => {
  const place = fc.double({ min: 0, max: 1, noNaN: true })
  const attacks = patterns.chain(({ source, texts }) => fc.record({
    source: fc.constant(source), maxTries: fc.constantFrom(1, 4, 64), texts: fc.array(fc.tuple(texts, place, place, fc.constantFrom('', '!', 'b', '-')), { minLength: 5, maxLength: 5 })
  }))
  const counts = { accepted: 0, refused: 0, superlinear: 0 }
  fc.assert(fc.property(attacks, ({ source, maxTries, texts }) => {
    const isAccepted = isLinear(source, maxTries)
    const isSuperlinear = texts.some(([text, start, length, end]) => {
      // A part of a text that matches is repeated, so that the number of ways to match it grows.
      const from = Math.floor(start * text.length)
      const part = text.slice(from, from + 1 + Math.floor(length * 8)) || 'a'
      const long = text.slice(0, from) + part.repeat(Math.ceil(300 / part.length)) + end
      const most = maxTries * sizeOf(source) * (long.length + 1)
      const { isMatch, tries } = match(source, long, most)
      if (isMatch !== undefined && isMatch !== new RegExp(source, 'u').test(long)) throw new Error('The matcher of this test is wrong')
      return tries > most
    })
    counts[isAccepted ? 'accepted' : isSuperlinear ? 'superlinear' : 'refused']++
    return !isAccepted || !isSuperlinear
  }), { numRuns: 500, seed })
  t.ok(counts.accepted > 200 && counts.superlinear > 20, JSON.stringify(counts))
})
