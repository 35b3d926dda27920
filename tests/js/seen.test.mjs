import assert from "node:assert/strict";
import { test } from "node:test";
import { Seen } from "../../src/reknit/gateway/static/reknit/seen.js";

test("what comes again is recognized, also a part of a batch", () => {
  const seen = new Seen();
  assert.deepEqual(seen.add("a", 1, 10), [[1, 11]]);
  assert.deepEqual(seen.add("a", 11, 5), [[11, 16]]);
  assert.deepEqual(seen.add("a", 3, 2), []);
  assert.deepEqual(seen.add("a", 14, 6), [[16, 20]]);
  assert.deepEqual(seen.add("b", 3), [[3, 4]]);
});

test("events that come out of order are new once", () => {
  const seen = new Seen();
  seen.add("a", 10, 2);
  seen.add("a", 20, 2);
  assert.deepEqual(seen.add("a", 8, 15), [[8, 10], [12, 20], [22, 23]]);
  assert.deepEqual(seen.add("a", 1, 30), [[1, 8], [23, 31]]);
  assert.deepEqual(seen.add("a", 1, 30), []);
});

test("its memory has a limit, and forgets the oldest", () => {
  const seen = new Seen();
  for (let at = 0; at < 2_000; at++) seen.add("a", 2 * at);
  assert.deepEqual(seen.add("a", 3_000), []);
  assert.deepEqual(seen.add("a", 0), [[0, 1]]);
});
