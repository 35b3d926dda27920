import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeBatch, decodeMessage } from "../../src/reknit/gateway/static/reknit/batch.js";
import { decode } from "../../src/reknit/gateway/static/reknit/msgpack.js";

test("bytes that end too early, or are of another kind, are refused and never read past", () => {
  for (const bytes of [[], [0x92, 1], [0xdd, 255, 255, 255, 255], [0xdb, 255, 255, 255, 255], [0xc1], [0xd9, 5, 65]]) {
    assert.throws(() => decode(Uint8Array.from(bytes)), RangeError);
  }
});

test("what is no batch is refused", () => {
  assert.throws(() => decodeBatch(new Uint8Array(64)), RangeError);
  assert.throws(() => decodeBatch(new Uint8Array(3)), RangeError);
  const short = new Uint8Array(80);
  short[2] = 1;
  short[4] = 80;
  short[40] = 255; // more events than it has bytes
  assert.throws(() => decodeBatch(short), RangeError);
});

test("a message that a node wrote is read as it was written", { skip: !process.env.REKNIT_MESSAGE }, () => {
  const message = Buffer.from(process.env.REKNIT_MESSAGE, "base64");
  const { checkpoint, events } = decodeMessage(new Uint8Array(message).buffer);
  const read = events.map(({ topic, source, seq, time_us, headers, payload }) => ({ topic, source, seq, time_us, headers: { ...headers }, payload }));
  assert.deepEqual({ checkpoint, events: read }, JSON.parse(process.env.REKNIT_EXPECTED));
});
