/** Remembers what was delivered, to recognize repeats within the grace period. */
export class Seen {
  constructor(graceMs = 60_000, max = 100_000) {
    this.graceMs = graceMs;
    this.max = max;
    this.added = new Map();
  }
  /** Remembers a key. Returns false if it was seen already. */
  add(key, now = Date.now()) {
    for (const [old, at] of this.added) {
      if (now - at <= this.graceMs && this.added.size < this.max) break;
      this.added.delete(old);
    }
    if (this.added.has(key)) return false;
    this.added.set(key, now);
    return true;
  }
}
