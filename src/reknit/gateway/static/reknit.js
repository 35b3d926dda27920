// Events in a page, without a build step:
//
//   import { stream } from "/reknit.js";
//   const chat = stream("/sse?topic=what/chat", { onevent: e => …, onstate: (state, why) => … });
//
// States: "opening", "live", "recovering" (disconnected, trying to resume), "recovered", "lost" (it can't resume:
// events may be missing, and no more events come unless `afterLost` is "live"), "closed".

const GRACE_MS = 60_000;
const SEEN_MAX = 100_000;
const BACKOFF_MS = [200, 10_000];

/** Remembers what was delivered, to recognize repeats within the grace period. */
export class Seen {
  constructor(graceMs = GRACE_MS, max = SEEN_MAX) {
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

/** Opens an SSE tunnel that resumes where it left off. `options`: onevent, onstate, via ("eventsource" or "fetch"),
 *  token, checkpoint, afterLost ("stop" or "live"). */
export function stream(url, options = {}) {
  const via = options.via ?? (options.token ? "fetch" : "eventsource");
  const one = via === "fetch" ? new FetchStream(url, options) : new EventSourceStream(url, options);
  one.open();
  return one;
}

class Stream {
  constructor(url, options) {
    this.url = new URL(url, globalThis.location?.href);
    this.options = options;
    this.state = "opening";
    this.checkpoint = options.checkpoint ?? "";
    this.seen = new Seen();
    this.repeats = 0;
  }
  become(state, why = "") {
    if (state === this.state && !why) return;
    this.state = state;
    this.options.onstate?.(state, why);
  }
  /** The first event on every connection says whether the tunnel was resumed. */
  opened(data) {
    const { state, why } = JSON.parse(data);
    if (state === "lost" || (state === "live" && this.state === "recovering")) {
      this.become("lost", why ?? "the server could not resume");
      if ((this.options.afterLost ?? "stop") === "stop") this.stop();
    } else {
      this.become(state, why);
    }
  }
  event(data, id) {
    if (this.state === "closed") return;
    if (id) this.checkpoint = id;
    const event = JSON.parse(data);
    if (!this.seen.add(`${event.source}:${event.seq}`)) {
      this.repeats += 1;
      return;
    }
    this.options.onevent?.(event);
  }
  cut(why) {
    if (this.state !== "lost" && this.state !== "closed") this.become(this.state === "opening" ? "opening" : "recovering", why);
  }
  close() {
    this.stop();
    this.become("closed");
  }
}

/** The browser's EventSource: it reconnects by itself, with Last-Event-ID. */
class EventSourceStream extends Stream {
  open() {
    if (this.checkpoint) this.url.searchParams.set("Last-Event-ID", this.checkpoint);
    this.source = new EventSource(this.url);
    this.source.addEventListener("opened", (message) => this.opened(message.data));
    this.source.addEventListener("closing", (message) => this.cut(JSON.parse(message.data).why));
    this.source.onmessage = (message) => this.event(message.data, message.lastEventId);
    this.source.onerror = () => {
      // after an answer such as 403 the browser does not reconnect
      if (this.source.readyState === EventSource.CLOSED) this.become("lost", "the server refused the request");
      else this.cut("disconnected");
    };
  }
  stop() {
    this.source.close();
  }
}

/** fetch() and a reader: sends a token in a header, and works without EventSource. */
class FetchStream extends Stream {
  async open() {
    this.abort = new AbortController();
    for (let attempt = 0; !this.abort.signal.aborted; attempt++) {
      try {
        if (await this.read()) attempt = 0;
        this.cut("the connection ended");
      } catch (error) {
        if (this.abort.signal.aborted) return;
        if (error instanceof Refused) return this.become("lost", error.message);
        this.cut(String(error));
      }
      const [low, high] = BACKOFF_MS;
      await new Promise((done) => setTimeout(done, Math.random() * Math.min(high, low * 2 ** attempt)));
    }
  }
  async read() {
    const headers = { Accept: "text/event-stream" };
    if (this.options.token) headers.Authorization = `Bearer ${this.options.token}`;
    if (this.checkpoint) headers["Last-Event-ID"] = this.checkpoint;
    const answer = await fetch(this.url, { headers, signal: this.abort.signal, cache: "no-store" });
    if (answer.status >= 400 && answer.status < 500) throw new Refused(await answer.text());
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "", got = false;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return got;
      got = true;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      blocks.forEach((block) => this.block(block));
    }
  }
  block(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
    }
    if (fields.event === "opened") {
      this.opened(fields.data);
      if (fields.id && this.state !== "lost") this.checkpoint = fields.id;
    } else if (fields.event === "closing") this.cut(JSON.parse(fields.data).why);
    else if (fields.data !== undefined) this.event(fields.data, fields.id);
    else if (fields.id) this.checkpoint = fields.id;
  }
  stop() {
    this.abort.abort();
  }
}

class Refused extends Error {}
