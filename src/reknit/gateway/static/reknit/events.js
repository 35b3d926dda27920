const text = new TextEncoder();

/** One event, as an application gets it. Text is in `payload`, anything else in `bytes` and `payload_base64`. */
export class StreamEvent {
  constructor(topic, source, seq, time_us, headers, value) {
    this.topic = topic;
    this.source = source;
    this.seq = seq;
    this.time_us = time_us;
    if (headers) this.headers = headers;
    if (typeof value === "string") this.payload = value;
    else Object.defineProperty(this, "bytes", { value });
  }
  /** The payload as it was published. */
  get bytes() {
    return text.encode(this.payload);
  }
  /** The payload, if it is not text. */
  get payload_base64() {
    if (this.payload !== undefined) return undefined;
    return btoa(Array.from(this.bytes, (byte) => String.fromCharCode(byte)).join(""));
  }
}

/** An event that came as JSON. */
export function eventOfRow({ topic, source, seq, time_us, headers, payload, payload_base64 }) {
  const value = payload ?? Uint8Array.from(atob(payload_base64), (one) => one.charCodeAt(0));
  return new StreamEvent(topic, source, seq, time_us, headers, value);
}

/** The events of a batch of `decodeBatch`. */
export function eventsOf({ topic, source, first, time_us, times, headers, values }) {
  return values.map((value, at) => new StreamEvent(topic, source, first + at, times ? times[at] : time_us, headers?.[at], value));
}
