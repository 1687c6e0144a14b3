import { Type, type Static } from '@sinclair/typebox'

/** The query of a list. Without a limit, the response is the whole list. */
export const PageQuery = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'Maximum number of records on the page; without it, all records are returned', examples: [100] })),
  after: Type.Optional(Type.String({ description: 'Cursor from the `Link` header of the previous page', examples: ['MA'] }))
})
export type PageQuery = Static<typeof PageQuery>
