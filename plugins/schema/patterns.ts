import { RegExpParser, visitRegExpAST, type AST } from '@eslint-community/regexpp'

/** A part of a pattern: in how many ways it matches the empty text, and the positions at which it can begin and end, once for each way. */
interface Part {
  empty: number
  first: number[]
  last: number[]
}

const nothing: Part = { empty: 1, first: [], last: [] }

/** A variable number of repetitions is like any number, if there are more than this. */
const maxVariants = 8

/** A fixed number of repetitions is like any number, if it is larger. */
const maxCopies = 128

/** The search ends with the answer "no" after so many steps. */
const maxSteps = 200_000

/**
 * Returns whether a pattern takes linear time for every text. Backtracking takes longer if a text can lead through the
 * positions of the pattern in a number of ways that grows with its length, so patterns with such loops are refused, and those
 * with back references and lookbehind. For a few patterns, the answer is "no" although they take linear time.
 */
export function isLinear (source: string) {
  const pattern = new RegExpParser().parsePattern(source, 0, source.length, { unicode: true })
  const { alternatives } = pattern
  const classes: string[] = []
  const next: number[][] = []
  const characters = new Set(samples)
  visitRegExpAST(pattern, { onCharacterEnter: ({ value }) => { characters.add(value) } })
  let isSupported = true

  const whole = either(alternatives.map(({ elements }) => sequence(elements.map((element, n) => {
    // Nothing follows, so the first match is enough.
    return n === elements.length - 1 && element.type === 'Quantifier' ? repeated(element, element.min, false) : partOf(element, false)
  }))))
  if (!alternatives.every(({ elements: [start] }) => start?.type === 'Assertion' && start.kind === 'start')) {
    // The search for a match begins at every character.
    const { last } = character('[^]')
    connect(last, [...last, ...whole.first])
  }
  return isSupported && !isAmbiguous(next, () => lettersOf(classes, characters))

  function partOf (node: AST.Element, isRepeated: boolean): Part {
    switch (node.type) {
      case 'Group': case 'CapturingGroup': return inner(node, isRepeated)
      case 'Quantifier': return quantified(node, isRepeated)
      case 'Character': case 'CharacterClass': case 'CharacterSet': return character(node.raw)
      case 'Assertion': if (node.kind !== 'lookbehind') return node.kind === 'lookahead' ? { ...nothing, first: inner(node, isRepeated).first } : nothing
    }
    isSupported = false
    return nothing
  }

  function inner ({ alternatives }: { alternatives: AST.Alternative[] }, isRepeated: boolean) {
    return either(alternatives.map(({ elements }) => sequence(elements.map(element => partOf(element, isRepeated)))))
  }

  /** A new position for one of these characters. */
  function character (raw: string): Part {
    classes.push(raw)
    const at = [next.push([]) - 1]
    return { empty: 0, first: at, last: at }
  }

  function quantified (node: AST.Quantifier, isRepeated: boolean): Part {
    const { min, max, element } = node
    if (max > maxCopies || (max > min && (isRepeated || max - min > maxVariants))) {
      const [copies, body] = [repeated(node, Math.min(Math.max(min - 1, 0), 1), isRepeated), partOf(element, isRepeated)]
      connect(body.last, body.first)
      return sequence([copies, { ...body, empty: min === 0 ? 1 : body.empty }])
    }
    let optional = nothing
    for (let n = min; n < max; n++) optional = either([sequence([partOf(element, isRepeated || max > 1), optional]), nothing])
    return sequence([repeated(node, min, isRepeated), optional])
  }

  function repeated ({ element, max }: AST.Quantifier, times: number, isRepeated: boolean) {
    return sequence(Array.from({ length: Math.min(times, maxCopies) }, () => partOf(element, isRepeated || max > 1)))
  }

  function sequence (parts: Part[]) {
    return parts.reduce((before, after) => {
      connect(before.last, after.first)
      return {
        empty: Math.min(before.empty * after.empty, 2),
        first: [before.first, ...Array(before.empty).fill(after.first)].flat(),
        last: [after.last, ...Array(after.empty).fill(before.last)].flat()
      }
    }, nothing)
  }

  function connect (last: number[], first: number[]) {
    for (const from of last) next[from]?.push(...first)
  }
}

function either (parts: Part[]): Part {
  return {
    empty: Math.min(parts.reduce((sum, { empty }) => sum + empty, 0), 2),
    first: parts.flatMap(({ first }) => first),
    last: parts.flatMap(({ last }) => last)
  }
}

/** Characters of all kinds. */
const samples = Array.from({ length: 0x3000 + 0x4400 }, (_, n) => n < 0x3000 ? n : (n - 0x3000) * 64)

/** Returns the letters of each class. Characters that are in the same classes are one letter. */
function lettersOf (classes: string[], characters: Iterable<number>) {
  const tests = [...new Set(classes)].map(source => ({ source, test: new RegExp(`^${source}$`, 'u'), letters: new Set<string>() }))
  for (const character of characters) {
    const text = String.fromCodePoint(character)
    const found = tests.filter(({ test }) => test.test(text))
    const letter = found.map(({ source }) => source).join(' ')
    for (const { letters } of found) letters.add(letter)
  }
  return classes.map(source => new Set(tests.find(test => test.source === source)?.letters))
}

/**
 * Returns whether a text leads from a position back to it and also to another one, and from that one back to it, so that the
 * number of ways grows with each repetition of the text (Weber and Seidl, 1991).
 */
function isAmbiguous (next: number[][], findLetters: () => Set<string>[]) {
  const reached = next.map((_, from) => reachable(from))
  const loops = [...next.keys()].filter(n => reached[n]?.has(n))
  if (loops.some(n => next[n]?.some((to, place, all) => reached[to]?.has(n) && all.indexOf(to) !== place))) return true
  if (loops.length < 2) return false
  const letters = findLetters()
  let steps = 0
  return loops.some(q => loops.some(p => p !== q && reached[q]?.has(p) && isGrowing(q, p)))

  function isGrowing (q: number, p: number) {
    const seen = new Set<string>()
    const queue: [number, number, number][] = [[q, q, p]]
    for (const [x, y, z] of queue) {
      for (const a of after(x)) {
        for (const b of after(y)) {
          for (const c of after(z)) {
            if (![...new Set(letters[a])].some(letter => letters[b]?.has(letter) && letters[c]?.has(letter))) continue
            if ((a === q && b === p && c === p) || ++steps > maxSteps) return true
            if (seen.size < seen.add(`${a} ${b} ${c}`).size) queue.push([a, b, c])
          }
        }
      }
    }
    return false
  }

  function reachable (from: number) {
    const found = after(from)
    for (const n of found) for (const to of after(n)) found.add(to)
    return found
  }

  function after (n: number) {
    return new Set(next[n])
  }
}
