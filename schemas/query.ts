/** The fields of a record that a query can use, if the definition of its collection has them in `filters`. */
type Queried<T> = {
  [K in keyof T & string]: NonNullable<T[K]> extends string | number | boolean ? K : never
}[keyof T & string]
type Comparison = 'gt' | 'gte' | 'lt' | 'lte'
type OperatorsOf<V> = V extends string ? Comparison | 'prefix' : V extends number ? Comparison : never

/** Conditions that a record must all meet, such as `{ status: ['open', 'paid'], 'price.gte': 10 }`. */
export type Where<T> =
  & { [K in Queried<T>]?: T[K] | readonly T[K][] | undefined }
  & { [K in Queried<T> as `${K}.${OperatorsOf<NonNullable<T[K]>>}`]?: T[K] | undefined }
  & { [K in Queried<T> as undefined extends T[K] ? `${K}.exists` : never]?: boolean | undefined }

/** A field to order by, after `-` in descending order. */
export type Sort<T> = Queried<T> | `-${Queried<T>}`

/** Which records a store selects, and in which order. */
export interface Query<T> {
  /** The conditions. Without them, all records are selected. Their fields must be in `filters`. */
  where?: Where<T> | undefined
  /** The order. Without it, it is that of creation. */
  sort?: Sort<T> | undefined
  /** The cursor `next` of the previous page of the same query. */
  after?: string | undefined
  /** The maximum number of records. */
  limit?: number | undefined
}

/** A query whose fields are not known to the compiler. */
export interface AnyQuery extends Pick<Query<object>, 'after' | 'limit'> {
  where?: object | undefined
  sort?: string | undefined
}
