import { RegExpParser, visitRegExpAST, type AST } from '@eslint-community/regexpp'
import fc from 'fast-check'

interface Generated {
  source: string
  texts: fc.Arbitrary<string>
}

const quantifiers: [string, number, number][] = [['*', 0, 4], ['+', 1, 4], ['?', 0, 1], ['{2}', 2, 2], ['{0,3}', 0, 3], ['{2,}', 2, 4], ['{0,9}', 0, 9], ['{1,70}', 1, 9], ['{0,1500}', 0, 4], ['*?', 0, 4], ['{1,4}?', 1, 4]]

const { part } = fc.letrec<{ part: Generated }>(tie => ({
  part: fc.oneof({ depthSize: 'small', withCrossShrink: true },
    fc.constantFrom(
      of('a', 'a'), of('b', 'b'), of('-', '-'), of('[ab]', 'a', 'b'), of('[^a]', 'b', '-', '\u{20000}'), of('\\w', 'a', 'b'), of('.', 'a', '-'), of('\\p{L}', 'a', 'é', '\u{20000}'), of('\u{20000}', '\u{20000}')
    ),
    fc.tuple(tie('part'), tie('part')).map(([one, other]) => join('', one, other)),
    fc.tuple(tie('part'), tie('part'), tie('part')).map(parts => join('', ...parts)),
    fc.tuple(tie('part'), tie('part')).map(([one, other]) => ({ source: `(?:${one.source}|${other.source})`, texts: fc.oneof(one.texts, other.texts) })),
    fc.tuple(tie('part'), fc.constantFrom(...quantifiers)).map(([{ source, texts }, [quantifier, minLength, maxLength]]) =>
      ({ source: `(${source})${quantifier}`, texts: fc.array(texts, { minLength, maxLength }).map(texts => texts.join('')) })),
    fc.tuple(tie('part'), fc.constantFrom('?=', '?!')).map(([{ source }, kind]) => ({ source: `(${kind}${source})`, texts: fc.constant('') })),
    fc.constantFrom(of('\\b', ''), of('$', ''), of('^', ''))
  )
}))

function of (source: string, ...texts: string[]): Generated {
  return { source, texts: fc.constantFrom(...texts) }
}

function join (between: string, ...parts: Generated[]): Generated {
  return { source: parts.map(({ source }) => source).join(between), texts: fc.tuple(...parts.map(({ texts }) => texts)).map(texts => texts.join('')) }
}

/** Patterns, each with texts that it matches in most cases. */
export const patterns = fc.tuple(fc.array(part, { minLength: 1, maxLength: 4 }), fc.constantFrom('^', '^', '^', ''), fc.constantFrom('$', 'b', ''))
  .map(([parts, start, end]) => join('', of(start, ''), ...parts, of(end, '')))

/** The number of characters and assertions in a pattern. */
export function sizeOf (source: string) {
  let size = 0
  const count = () => { size++ }
  visitRegExpAST(parse(source), { onCharacterEnter: count, onCharacterSetEnter: count, onAssertionEnter: count })
  return size
}

/**
 * Matches a text as the specification of JavaScript says, with backtracking. Returns whether it matches, and how many characters
 * and assertions of the pattern were tried. After `most` of them, it ends.
 */
export function match (source: string, text: string, most: number) {
  const { alternatives } = parse(source)
  const characters = [...text]
  const classes = new Map<string, RegExp>()
  let tries = 0
  try {
    return { isMatch: [...characters, ''].some((_, start) => some(alternatives, start, () => true)), tries }
  } catch (error) {
    if (error !== tooMany && !(error instanceof RangeError)) throw error // or the stack is full
    return { tries }
  }

  function some (alternatives: AST.Alternative[], at: number, next: (at: number) => boolean) {
    return alternatives.some(({ elements }) => all(elements, 0, at, next))
  }

  function all (elements: AST.Element[], n: number, at: number, next: (at: number) => boolean): boolean {
    const element = elements[n]
    return element ? one(element, at, to => all(elements, n + 1, to, next)) : next(at)
  }

  function one (node: AST.Element, at: number, next: (at: number) => boolean): boolean {
    if (node.type === 'Quantifier') return repeated(node, 0, at, next)
    if (node.type === 'Group' || node.type === 'CapturingGroup') return some(node.alternatives, at, next)
    if (node.type === 'Assertion' && node.kind === 'lookahead') return some(node.alternatives, at, () => true) !== node.negate && next(at)
    if (++tries > most) throw tooMany
    if (node.type !== 'Assertion') return at < characters.length && classOf(node.raw).test(characters[at] ?? '') && next(at + 1)
    const [before, after] = [at - 1, at].map(at => /\w/.test(characters[at] ?? ''))
    return (node.kind === 'start' ? at === 0 : node.kind === 'end' ? at === characters.length : before !== after) && next(at)
  }

  function repeated (node: AST.Quantifier, times: number, at: number, next: (at: number) => boolean): boolean {
    const again = () => times < node.max && one(node.element, at, to => (to > at || times < node.min) && repeated(node, times + 1, to, next))
    const stop = () => times >= node.min && next(at)
    return node.greedy ? again() || stop() : stop() || again()
  }

  function classOf (raw: string) {
    const known = classes.get(raw) ?? new RegExp(`^${raw}$`, 'u')
    classes.set(raw, known)
    return known
  }
}

const tooMany = new Error('Too many tries')

function parse (source: string) {
  return new RegExpParser().parsePattern(source, 0, source.length, { unicode: true })
}
