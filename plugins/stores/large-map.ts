/** V8 throws if a Map needs more than 2^24 slots. Half as many entries always fit, because deleted entries use slots too. */
const maxEntries = 2 ** 23

/** A map from numbers to numbers without V8's limit on entries: when a Map is full, another one is added. */
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
