import { RegExpParser, visitRegExpAST, type AST } from '@eslint-community/regexpp'

/** Positions of the pattern, and in how many ways each is reached. */
type Ways = Map<number, number>

/** A part of a pattern: in how many ways it matches the empty text, and the positions at which it can begin and end. */
interface Part {
  empty: number
  first: Ways
  last: Ways
}

const nothing: Part = { empty: 1, first: new Map(), last: new Map() }

/** Repetitions are copied until a pattern has so many positions. Further ones are like any number of repetitions, which have more ways. */
const maxPositions = 1000

/** The search ends with the answer "no" after so many steps. */
const maxSteps = 200_000

/**
 * Returns whether a pattern takes linear time for every text. A backtracking matcher walks all ways through the positions of the
 * pattern (its Glushkov automaton), so the number of ways is what counts: the ambiguity must be bounded (Weber and Seidl, 1991).
 * The search follows all texts at once, as the subset construction does, and counts in how many ways they lead to each
 * position. If a character of the pattern is tried at most `maxTries` times at each character of a text, the pattern is linear.
 * Back references, lookbehind, and repetitions of what can be empty are refused. So are some others that take linear time.
 */
export function isLinear (source: string, maxTries = 64) {
  const pattern = new RegExpParser().parsePattern(source, 0, source.length, { unicode: true })
  /** The character of the pattern at each position, and the positions that can follow. */
  const nodes: { raw: string, start: number }[] = []
  const next: Ways[] = []
  let isSupported = true
  let hasAssertion = false

  const isStart = (node?: AST.Element) => node?.type === 'Assertion' && node.kind === 'start'
  const whole = either(pattern.alternatives.map(({ elements }) => sequence((isStart(elements[0]) ? elements.slice(1) : elements).map(partOf))))
  const isAnchored = pattern.alternatives.every(({ elements }) => isStart(elements[0]))
  // The match ends here in any case, so of all ways to these positions only the first one is continued.
  const final = new Set(hasAssertion ? [] : whole.last.keys())
  return isSupported && isBounded()

  function partOf (node: AST.Element): Part {
    switch (node.type) {
      case 'Quantifier': return quantified(node)
      case 'Character': case 'CharacterClass': case 'CharacterSet': return character(node)
      case 'CapturingGroup': return inner(node)
      case 'Group': if (!node.modifiers) return inner(node); break
      case 'Assertion': {
        hasAssertion = true
        if (node.kind === 'lookahead') return { ...nothing, first: inner(node).first }
        if (node.kind !== 'lookbehind') return { ...nothing, first: character({ ...node, raw: '[]' }).first }
      }
    }
    isSupported = false
    return nothing
  }

  function inner ({ alternatives }: { alternatives: AST.Alternative[] }) {
    return either(alternatives.map(({ elements }) => sequence(elements.map(partOf))))
  }

  function character (node: { raw: string, start: number }): Part {
    nodes.push(node)
    const at = new Map([[next.push(new Map()) - 1, 1]])
    return { empty: 0, first: at, last: at }
  }

  function quantified ({ min, max, element }: AST.Quantifier): Part {
    if (max === 0) return nothing
    const before = next.length
    const body = partOf(element)
    if (max > 1 && body.empty > 0) isSupported = false
    const copies = max === Infinity ? Math.max(min, 1) : max
    if ((next.length - before) * copies > maxPositions - before) {
      connect(body.last, body.first)
      return { ...body, empty: min === 0 ? 1 : 0 }
    }
    const parts = [body, ...Array.from({ length: copies - 1 }, () => partOf(element))]
    const last = parts.at(-1)
    if (max === Infinity && last) connect(last.last, last.first)
    // Each copy is reached only through the previous one.
    return parts.reduceRight((rest, part, n) => {
      const both = sequence([part, rest])
      return n < min ? both : either([both, nothing])
    }, nothing)
  }

  function sequence (parts: Part[]) {
    return parts.reduce((before, after) => {
      connect(before.last, after.first)
      return { empty: before.empty * after.empty, first: sum(before.first, after.first, before.empty), last: sum(after.last, before.last, after.empty) }
    }, nothing)
  }

  function connect (last: Ways, first: Ways) {
    for (const [from, ways] of last) next[from] = sum(next[from], first, ways)
  }

  /** Returns whether no text leads to more than `maxTries` of a character of the pattern. */
  function isBounded () {
    const letters = lettersOf(pattern, nodes.map(({ raw }) => raw))
    const seen = new Set<string>()
    const found = [whole.first]
    let steps = 0
    for (let ways = found.pop(); ways; ways = found.pop()) {
      const tries = new Map<number, number>()
      for (const [at, count] of ways) {
        const node = Number(nodes[at]?.start)
        tries.set(node, (tries.get(node) ?? 0) + count)
      }
      if ([...tries.values()].some(count => count > maxTries)) return false
      if (seen.size === seen.add([...ways].sort(([a], [b]) => a - b).join(' ')).size) continue
      for (const letter of new Set([...ways.keys()].flatMap(at => [...new Set(letters[at])]))) {
        let after = isAnchored ? new Map<number, number>() : whole.first
        let ended = new Map<number, number>()
        for (const [at, count] of ways) {
          if (!letters[at]?.has(letter)) continue
          if (final.has(at)) ended = sum(ended, next[at], 1, Math.max)
          else after = sum(after, next[at], count)
          steps += 1 + Number(next[at]?.size)
        }
        if (steps > maxSteps) return false
        found.push(sum(after, ended))
      }
    }
    return true
  }
}

function either (parts: Part[]) {
  return parts.reduce((one, other) => ({ empty: one.empty + other.empty, first: sum(one.first, other.first), last: sum(one.last, other.last) }), { ...nothing, empty: 0 })
}

function sum (one: Ways = new Map(), other: Ways = new Map(), times = 1, add = (a: number, b: number) => a + b) {
  const all = new Map(one)
  if (times > 0) for (const [at, count] of other) all.set(at, add(all.get(at) ?? 0, count * times))
  return all
}

/** All characters up to the last assigned plane, in an order without surrogate pairs, and some of the other planes. */
const ranges = [[0, 0xd7ff], [0xdc00, 0xdfff], [0xd800, 0xdbff], [0xe000, 0x3ffff], [0x40000, 0x40000], [0xe0000, 0xe0fff], [0xf0000, 0xf0000]] as const
const characters = ranges.map(([from, to]) => Array.from({ length: to - from + 1 }, (_, n) => String.fromCodePoint(from + n)).join('')).join('')
const bounds = new Map<string, string[]>()

/** The first character of each range of a class, and the first one after it. */
function boundsOf (source: string) {
  const found = bounds.get(source) ?? Array.from(characters.matchAll(new RegExp(`(?:${source})+`, 'gu')),
    ({ 0: range, index }) => [index, index + range.length].map(at => String.fromCodePoint(characters.codePointAt(at) ?? 0))).flat()
  bounds.set(source, found)
  return found
}

/** Returns the letters of each class. Characters that are in the same classes are one letter. */
function lettersOf (pattern: AST.Pattern, classes: string[]) {
  const sources = [...new Set(classes)]
  const samples = new Set(sources.flatMap(boundsOf))
  visitRegExpAST(pattern, { onCharacterEnter: ({ value }) => { samples.add(String.fromCodePoint(value)).add(String.fromCodePoint(Math.min(value + 1, 0x10ffff))) } })
  const tests = sources.map(source => ({ source, test: new RegExp(`^${source}$`, 'u'), letters: new Set<string>() }))
  for (const sample of samples) {
    const matching = tests.filter(({ test }) => test.test(sample))
    const letter = matching.map(({ source }) => source).join(' ')
    for (const { letters } of matching) letters.add(letter)
  }
  const bySource = new Map(tests.map(({ source, letters }) => [source, letters]))
  return classes.map(source => bySource.get(source))
}
