import type { TSchema } from '@sinclair/typebox'
import type { KeywordCxt, KeywordDefinition, Options, ValidateFunction } from 'ajv'
import { _ } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { mergeEvaluated, toHash } from 'ajv/dist/compile/util.js'
import properties from 'ajv/dist/vocabularies/applicator/properties.js'
import addFormats from 'ajv-formats'
import { firstOf, problemsOf, type Problem } from './problems.js'
import { areUnique, identify, isSmall, multipleCheck, pathOfInfinity } from './values.js'
import { isAnnotation, mapSchema, pointer } from './walk.js'

const propertiesKeyword = properties.default

/** An object whose schema has more fields is checked by the fields that it has. */
const manyFields = 20

/** Creates an Ajv. It does not check our schemas against the meta schema, because that makes the start slower. */
export function createAjv (options: Options) {
  const ajv = new Ajv2020({ allErrors: true, verbose: true, meta: false, validateSchema: false, strictTypes: false, strictTuples: false, ...options })
  return ajv.removeKeyword('multipleOf').addKeyword({
    keyword: 'multipleOf', // for that of Ajv, 19.99 is not a multiple of 0.01
    type: 'number',
    schemaType: 'number',
    compile: multipleCheck,
    errors: false,
    error: { message: ({ schema }) => `must be a multiple of ${schema}` }
  }).removeKeyword('uniqueItems').addKeyword({
    keyword: 'uniqueItems', // that of Ajv takes quadratic time
    type: 'array',
    schemaType: 'boolean',
    validate: (isUnique: boolean, items: unknown[], _schema?: object, context?: { rootData: object }) =>
      !isUnique || items.length < 2 || areUnique(items, identify(Object(context).rootData)),
    errors: false,
    error: { message: 'must not have duplicate items' }
  }).removeKeyword('properties').addKeyword({ ...propertiesKeyword, before: 'patternProperties', code: checkProperties })
}

/**
 * Checks the fields of an object. Ajv looks for each field of the schema, which takes long for a body with many small objects. If
 * the schema has many fields, this looks for those of the object instead.
 */
function checkProperties (context: KeywordCxt) {
  const { gen, schema, data, it } = context
  const names = Object.keys(schema)
  if (names.length <= manyFields || it.allErrors) return propertiesKeyword.code(context)
  if (it.props !== true) it.props = mergeEvaluated.props(gen, toHash(names), it.props)
  const valid = gen.name('valid')
  gen.var(valid, true)
  gen.forIn('key', data, key => {
    for (const name of names) {
      gen.if(_`${key} === ${name}`, () => {
        context.subschema({ keyword: 'properties', schemaProp: name, dataProp: name }, valid)
        gen.if(_`!${valid}`, () => gen.break())
      })
    }
  })
  context.ok(valid)
}

/** A name that the client chooses is part of the path of all values below it. */
const maxName = 1024

/** Our keywords. They are not in the schemas themselves, because other programs do not know them. */
const keywords: KeywordDefinition[] = [
  {
    keyword: 'isWellFormed', // UTF-8 cannot represent lone surrogates
    type: 'string',
    validate: (_schema: true, text: string) => text.isWellFormed(),
    errors: false,
    error: { message: 'must be well-formed Unicode text' }
  },
  {
    keyword: 'hasShortNames',
    type: 'object',
    before: 'additionalProperties',
    validate: (_schema: true, value: object) => Object.keys(value).every(({ length }) => length <= maxName),
    errors: false,
    error: { message: `must not have names of more than ${maxName} characters` }
  },
  {
    keyword: 'isAmong', // an enum, which Ajv searches value by value
    compile: (values: unknown[]) => Set.prototype.has.bind(new Set(values)),
    errors: false
  },
  {
    keyword: 'quiet', // a schema whose errors nobody needs
    code (context: KeywordCxt) {
      const valid = context.gen.name('valid')
      context.mergeEvaluated(context.subschema({ keyword: 'quiet', createErrors: false }, valid))
      context.ok(valid)
    }
  }
]

export const ownKeywords = keywords.map(({ keyword }) => String(keyword))

/** Returns the problems of a value. They are all collected if the second function returns true. */
type Check = (value: unknown, isDetailed?: () => boolean) => Problem[] | undefined

const checkers = new Map<string, ReturnType<typeof createChecker>>()

const ajvs = new Map<boolean, Ajv2020>()

/** The Ajv for the schemas of records and requests. All apps of a process share it. */
export function sharedAjv (allErrors = true) {
  const ajv = ajvs.get(allErrors) ?? addFormats.default(createAjv({ allErrors, keywords: [...keywords, 'expected'], ownProperties: true, code: { process: code => (allErrors ? withFewErrors : withoutInnerErrors)(withoutData(code)) } }))
    .addFormat('int64', true) // these two are for other programs
    .addFormat('double', true)
  ajvs.set(allErrors, ajv)
  return ajv
}

/**
 * Returns a function that returns the problems of an invalid value. Types are strict. Equal schemas have the same function.
 * A value is first validated without collecting errors. All problems are collected only if the value is small, because Ajv
 * takes super-linear time for it; otherwise the first problem is enough.
 */
export function checkerOf ({ $id, ...schema }: TSchema) {
  const key = JSON.stringify(schema)
  const checker = checkers.get(key) ?? createChecker(mapSchema(schema, withChecks))
  checkers.set(key, checker)
  return checker
}

/** Returns the problems of some values. Those of all values are collected if all together are small, otherwise the first one of each. */
export function problemsOfEach (values: readonly unknown[], problemsIn: Check) {
  let known: boolean | undefined
  let areValid = true
  const areSmall = () => (known ??= isSmall(values))
  const problems = firstOf(eachProblem())
  return areValid ? undefined : problems

  function * eachProblem () {
    for (const [n, value] of values.entries()) {
      const found = problemsIn(value, areSmall)
      areValid &&= found === undefined
      for (const { path, message, field } of found ?? []) yield { path: pointer(n) + path, message, field }
    }
  }
}

function createChecker (schema: TSchema) {
  const validate = sharedAjv(false).compile(mapSchema(schema, withoutAlternatives))
  // Ajv accepts only finite numbers, but it does not look into values without a type.
  const open = Object.entries<TSchema>({ ...schema.properties }).filter(([, { type }]) => ![type].flat().every(type => scalars.includes(type))).map(([name]) => name)
  let collect: ValidateFunction | undefined
  const problemsIn: Check = (value, isDetailed) => bySchema(value, isDetailed) ?? ofNumbers(value)
  return Object.assign(problemsIn, { bySchema, ofNumbers }) // a large value is checked in two turns of the event loop

  function bySchema (value: unknown, isDetailed = () => isSmall(value)): Problem[] | undefined {
    try {
      if (validate(value)) return
      if (!isDetailed()) return problemsOf(validate.errors)
      collect ??= sharedAjv().compile(schema)
      collect(value)
      return problemsOf(collect.errors)
    } catch (error) {
      return tooDeep(error)
    }
  }

  function ofNumbers (value: unknown): Problem[] | undefined {
    try {
      const path = pathOfInfinity(value, open)
      return path === undefined ? undefined : [{ path, message: 'must be a number' }]
    } catch (error) {
      return tooDeep(error)
    }
  }
}

/** The problem of a value whose levels exhaust the stack, because a function calls itself or another one for each of them. */
function tooDeep (error: unknown) {
  if (!(error instanceof RangeError)) throw error
  return [{ path: '', message: 'must not be nested so deeply' }]
}

const scalars = ['boolean', 'integer', 'null', 'number', 'string']

/** A schema with our keywords, and without annotations, which Ajv does not know. */
function withChecks (given: TSchema) {
  const part = Object.fromEntries(Object.entries(given).filter(([keyword]) => !isAnnotation(keyword))) as TSchema
  const { type, additionalProperties, unevaluatedProperties, patternProperties } = part
  const hasFreeNames = [additionalProperties, unevaluatedProperties, patternProperties].some(keyword => Object(keyword) === keyword)
  return { ...part, ...[type].flat().includes('string') && { isWellFormed: true }, ...hasFreeNames && { hasShortNames: true } }
}

/** The schema for the first validation, which tries many alternatives and searches long lists for each value. */
function withoutAlternatives ({ enum: values, ...part }: TSchema) {
  const quiet = (schema: object) => ({ quiet: schema })
  return {
    ...part,
    ...values && (values.length > 20 && values.every((value: unknown) => Object(value) !== value) ? { isAmong: values } : { enum: values }),
    ...part.anyOf && { anyOf: part.anyOf.map(quiet) },
    ...part.oneOf && { oneOf: part.oneOf.map(quiet) },
    ...part.contains && { contains: quiet(part.contains) }
  }
}

/** Generated code, in which an error does not have the invalid value, which a function would keep in memory until its next call. Texts stay. */
function withoutData (code: string) {
  return code.replaceAll(/("(?:[^"\\]|\\.)*")|,data(?::data\d*)?(?=\})/g, '$1')
}

/** Generated code, in which an alternative that does not match is counted, but has no error, and errors are not copied at each level. */
function withoutInnerErrors (code: string) {
  return code
    .replaceAll(/const (err\d+) = \{\};if\(vErrors === null\)\{vErrors = \[\1\];\}else \{vErrors\.push\(\1\);\}errors\+\+;/g, 'errors++;')
    .replaceAll(/vErrors = vErrors === null \? ([\w.]+)\.errors : vErrors\.concat\(\1\.errors\);errors = vErrors\.length;/g, 'vErrors = $1.errors;errors++;')
}

/** Generated code, in which a long list of errors is not copied for each value. */
function withFewErrors (code: string) {
  return code.replaceAll(/vErrors\.concat\(([\w.]+)\.errors\)/g, '(vErrors.length < 500 ? vErrors.concat($1.errors) : (vErrors.push($1.errors[0]), vErrors))')
}
