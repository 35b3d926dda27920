// Batches as nodes store and send them: docs/reference/wire.md. All numbers are little endian.
//
// A decoded batch has few objects, however many events it has, so that it is quickly passed on from a worker:
// { topic, source, first, time_us, times?, headers?, values }, with a string for each payload that is text.

import { decode } from "./msgpack.js";

const HEADER_BYTES = 64;
const KIND_BATCH = 1;
const text = new TextDecoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A binary message of a WebSocket, `[checkpoint, events to skip, batch]`: the checkpoint after it, and its batch. */
export function decodeMessage(buffer) {
  const [checkpoint, skip, batch] = decode(new Uint8Array(buffer));
  return { checkpoint, batch: decodeBatch(batch, skip) };
}

/** A batch without its first `skip` events. Throws a RangeError if the bytes are none. */
export function decodeBatch(bytes, skip = 0) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HEADER_BYTES || view.getUint8(2) !== KIND_BATCH || view.getUint32(4, true) > bytes.length) {
    throw new RangeError("these bytes are no batch");
  }
  const source = Array.from(bytes.subarray(16, 32), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const first = Number(view.getBigUint64(32, true)) + skip;
  const count = view.getUint32(40, true);
  const topicBytes = view.getUint16(44, true);
  const time_us = Number(view.getBigUint64(48, true));
  const columnsBytes = view.getUint32(60, true);
  const topic = text.decode(bytes.subarray(HEADER_BYTES, HEADER_BYTES + topicBytes));
  const columnsAt = HEADER_BYTES + pad8(topicBytes);
  const columns = columnsBytes ? decode(bytes.subarray(columnsAt, columnsAt + columnsBytes)) : {};
  const lengthsAt = columnsAt + pad8(columnsBytes);
  const start = lengthsAt + pad8(4 * count);
  if (start > bytes.length) throw new RangeError("a batch is shorter than its payloads");
  const ends = [];
  let at = start;
  for (let index = 0; index < count; index++) ends.push((at += view.getUint32(lengthsAt + 4 * index, true)));
  if (at > bytes.length) throw new RangeError("a batch is shorter than its payloads");
  const from = skip ? ends[skip - 1] : start;
  const batch = { topic, source, first, time_us, values: valuesOf(bytes, from, ends.slice(skip)) };
  if (columns.time) batch.times = columns.time.slice(skip);
  if (columns.headers) batch.headers = columns.headers.slice(skip);
  return batch;
}

/** The payloads: text as strings. If all are ASCII, as most are, they are decoded at once. */
function valuesOf(bytes, start, ends) {
  const all = bytes.subarray(start, ends.at(-1) ?? start);
  const joined = textOf(all);
  const values = [];
  let at = start;
  for (const end of ends) {
    if (joined?.length === all.length) values.push(joined.slice(at - start, end - start));
    else values.push(textOf(bytes.subarray(at, end)) ?? bytes.slice(at, end));
    at = end;
  }
  return values;
}

function textOf(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return undefined;
  }
}

function pad8(size) {
  return (size + 7) & ~7;
}
