// Batches as nodes store and send them: docs/reference/wire.md. All numbers are little endian.

import { decode } from "./msgpack.js";

const HEADER_BYTES = 64;
const KIND_BATCH = 1;
const text = new TextDecoder();

/** One event of a batch. Its payload is decoded when it is asked for. */
export class BatchEvent {
  constructor(topic, source, seq, time_us, headers, bytes) {
    this.topic = topic;
    this.source = source;
    this.seq = seq;
    this.time_us = time_us;
    if (headers) this.headers = headers;
    this.bytes = bytes;
  }
  get payload() {
    return text.decode(this.bytes);
  }
}

/** A binary message of a WebSocket, `[checkpoint, events to skip, batch]`: the checkpoint after it, and its events. */
export function decodeMessage(buffer) {
  const [checkpoint, skip, batch] = decode(new Uint8Array(buffer));
  return { checkpoint, events: decodeBatch(batch, skip) };
}

/** The events of a batch, without the first `skip`. Throws a RangeError if the bytes are none. */
export function decodeBatch(bytes, skip = 0) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HEADER_BYTES || view.getUint8(2) !== KIND_BATCH || view.getUint32(4, true) > bytes.length) {
    throw new RangeError("these bytes are no batch");
  }
  const source = Array.from(bytes.subarray(16, 32), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const first = Number(view.getBigUint64(32, true));
  const count = view.getUint32(40, true);
  const topicBytes = view.getUint16(44, true);
  const timeUs = Number(view.getBigUint64(48, true));
  const columnsBytes = view.getUint32(60, true);
  const topic = text.decode(bytes.subarray(HEADER_BYTES, HEADER_BYTES + topicBytes));
  const columnsAt = HEADER_BYTES + pad8(topicBytes);
  const columns = columnsBytes ? decode(bytes.subarray(columnsAt, columnsAt + columnsBytes)) : {};
  const lengthsAt = columnsAt + pad8(columnsBytes);
  const events = [];
  let at = lengthsAt + pad8(4 * count);
  for (let index = 0; index < count; index++) {
    const stop = at + view.getUint32(lengthsAt + 4 * index, true);
    if (stop > bytes.length) throw new RangeError("a batch is shorter than its payloads");
    if (index >= skip) {
      const time = columns.time ? columns.time[index] : timeUs;
      events.push(new BatchEvent(topic, source, first + index, time, columns.headers?.[index], bytes.subarray(at, stop)));
    }
    at = stop;
  }
  return events;
}

function pad8(size) {
  return (size + 7) & ~7;
}
