import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeBatch, decodeMessage } from "../../src/reknit/gateway/static/reknit/batch.js";
import { eventsOf } from "../../src/reknit/gateway/static/reknit/events.js";
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
  const { checkpoint, batch } = decodeMessage(new Uint8Array(message).buffer);
  const read = eventsOf(batch).map(({ topic, source, seq, time_us, headers, payload }) => ({ topic, source, seq, time_us, headers: { ...headers }, payload }));
  assert.deepEqual({ checkpoint, events: read }, JSON.parse(process.env.REKNIT_EXPECTED));
});

test("text is text, anything else keeps its bytes", () => {
  const payloads = ["a", "ü", "\ufeffb", ""].map((one) => Buffer.from(one)).concat(Buffer.from([0xff, 0x00]));
  const bytes = Buffer.alloc(64 + 8 + 24 + 9);
  bytes[2] = 1;
  bytes.writeUInt32LE(bytes.length, 4);
  bytes.writeBigUInt64LE(7n, 32);
  bytes.writeUInt32LE(payloads.length, 40);
  bytes.writeUInt16LE(1, 44);
  bytes[64] = 0x61;
  payloads.forEach((one, at) => bytes.writeUInt32LE(one.length, 72 + 4 * at));
  Buffer.concat(payloads).copy(bytes, 96);
  const events = eventsOf(decodeBatch(new Uint8Array(bytes)));
  assert.deepEqual(events.map((event) => event.payload), ["a", "ü", "\ufeffb", "", undefined]);
  assert.deepEqual(events.map((event) => event.seq), [7, 8, 9, 10, 11]);
  assert.deepEqual(events.map((event) => Buffer.from(event.bytes)), payloads);
  assert.deepEqual(events.map((event) => event.payload_base64), [undefined, undefined, undefined, undefined, "/wA="]);
  assert.deepEqual(eventsOf(decodeBatch(new Uint8Array(bytes), 3)).map((event) => event.seq), [10, 11]);
});
