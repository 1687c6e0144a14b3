/** Starts to measure the CPU time of this process, which other processes hardly change, and returns a function that returns it in milliseconds. */
export function cpuTime () {
  const before = process.cpuUsage()
  return () => {
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000
  }
}
