import { Type, type Static } from '@sinclair/typebox'

/** Which part of a list to return. Without a limit, it is the whole list. */
export const PageQuery = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'How many records to give at most; all of them where it is not set' })),
  after: Type.Optional(Type.String({ description: 'Where to go on, as the `Link` of the page before tells' }))
})
export type PageQuery = Static<typeof PageQuery>
