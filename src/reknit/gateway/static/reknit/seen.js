const SOURCES_MAX = 10_000;
const RANGES_MAX = 1_000;

/** Remembers which events came, as ranges of their numbers, to recognize repeats. Old ones are forgotten. */
export class Seen {
  #bySource = new Map();

  /** Remembers the events [first, first + count) of a source. Returns the ranges of them that are new. */
  add(source, first, count = 1) {
    const ranges = this.#rangesOf(source);
    const stop = first + count;
    const last = ranges.at(-1);
    if (!last || first > last[1]) ranges.push([first, stop]); // the usual case, and the next one
    else if (first === last[1]) last[1] = stop;
    else return insert(ranges, first, stop);
    if (ranges.length > RANGES_MAX) ranges.shift();
    return [[first, stop]];
  }

  #rangesOf(source) {
    let ranges = this.#bySource.get(source);
    if (!ranges) {
      this.#bySource.set(source, (ranges = []));
      if (this.#bySource.size > SOURCES_MAX) this.#bySource.delete(this.#bySource.keys().next().value);
    }
    return ranges;
  }
}

function insert(ranges, first, stop) {
  const fresh = [];
  let at = first;
  for (const [start, end] of ranges) {
    if (end <= at || start >= stop) continue;
    if (start > at) fresh.push([at, start]);
    at = Math.max(at, end);
  }
  if (at < stop) fresh.push([at, stop]);
  const all = [...ranges, [first, stop]].sort((a, b) => a[0] - b[0]);
  ranges.length = 0;
  for (const [start, end] of all) {
    const last = ranges.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else ranges.push([start, end]);
  }
  if (ranges.length > RANGES_MAX) ranges.shift();
  return fresh;
}
