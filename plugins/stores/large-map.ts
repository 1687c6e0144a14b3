/** V8 throws when a Map needs more than 2^24 slots. Half as many entries always fit: V8 reuses the slots of deleted ones. */
const maxEntries = 2 ** 23

/** Maps numbers to numbers, as many as memory holds: when a Map is full, another one is added. */
export function largeMap (entriesPerMap = maxEntries) {
  const maps = [new Map<number, number>()]

  return {
    get (key: number) {
      for (const map of maps) {
        const value = map.get(key)
        if (value !== undefined) return value
      }
    },

    set (key: number, value: number) {
      const map = maps.find(map => map.has(key)) ?? maps.find(map => map.size < entriesPerMap)
      if (map) map.set(key, value)
      else maps.push(new Map([[key, value]]))
    },

    delete (key: number) {
      maps.some(map => map.delete(key))
    }
  }
}
