// Measures the memory of a million items in a store, or as objects in an array and a Map.
import { memory } from '../../dist/plugins/stores/memory.js'
import { Item } from '../../dist/schemas/item.js'

const store = process.argv[2] === 'store' ? memory({ schema: Item, seed: [] }) : undefined
const array = []
const map = new Map()

globalThis.gc()
const before = process.memoryUsage().rss
for (let id = 1; id <= 1_000_000; id++) {
  const item = JSON.parse(`{"id":${id},"name":"Number ${id}","price":${id + 0.25}}`)
  if (store) {
    store.append(item)
  } else {
    array.push(item)
    map.set(id, item)
  }
}
globalThis.gc()
console.log(process.memoryUsage().rss - before)
