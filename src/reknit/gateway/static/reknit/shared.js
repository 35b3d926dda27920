import { call } from "./driver.js";
import { eventsOf } from "./events.js";
import { deliver, onWake, Stream } from "./stream.js";
import { BroadcastTransport, WorkerTransport } from "./transports.js";

const LOOK_MS = 5_000;
/** A hub that says nothing for so long has crashed: it sends a ping every 10 seconds. */
const SILENT_MS = 30_000;
const TRANSPORTS = { sharedworker: WorkerTransport, broadcast: BroadcastTransport };

/** Whether a page can share its streams with the other tabs of its site. */
export function canShare(url, { ticket, via }) {
  if (via && via !== "shared" && !TRANSPORTS[via]) return false;
  const isPattern = /\/(sse|ws)$/.test(url.pathname);
  // a ticket may be of somebody else than in the other tabs
  return isPattern && !ticket && (via ? [TRANSPORTS[via] ?? WorkerTransport] : Object.values(TRANSPORTS)).some((one) => one.isThere());
}

/** A stream over the connection that all tabs share. Without a hub it gets one of its own. */
export class SharedStream {
  #own = null;
  #state = "closed";
  #why = "";
  #checkpoint;
  #repeats = 0;
  #tab;

  constructor(url, options) {
    this.url = url;
    this.options = options;
    this.#checkpoint = options.checkpoint ?? "";
    this.id = 0;
  }
  get state() {
    return this.#own?.state ?? this.#state;
  }
  get why() {
    return this.#own?.why ?? this.#why;
  }
  get checkpoint() {
    return this.#own?.checkpoint ?? this.#checkpoint;
  }
  get repeats() {
    return this.#own?.repeats ?? this.#repeats;
  }
  open() {
    this.#state = this.#checkpoint ? "recovering" : "opening";
    this.#tab = Tab.of(this.options.via);
    this.#tab.add(this);
    return this;
  }
  close() {
    this.#tab.remove(this);
    if (this.#own) this.#own.close();
    else this.become("closed");
  }

  /** What the hub has to know. */
  get subscription() {
    const { token, afterLost, quietMs, creditBytes } = this.options;
    return { type: "subscribe", id: this.id, url: String(this.url), checkpoint: this.#checkpoint, token, afterLost, quietMs, creditBytes };
  }

  receive(message) {
    if (message.checkpoint) this.#checkpoint = message.checkpoint;
    if (message.type === "state") return this.become(message.state, message.why);
    this.#repeats = message.repeats;
    deliver(this.options, eventsOf(message.batch), message.checkpoint);
  }
  /** The hub is gone: another one resumes. */
  interrupt(why) {
    if (this.#state === "live" || this.#state === "recovered") this.become("recovering", why);
    else this.wait(why);
  }
  /** Nothing came yet. */
  wait(why) {
    if (this.#state === "opening") this.become("waiting", why);
  }
  /** There is no hub. */
  standAlone() {
    const { via, ...options } = this.options;
    if (this.#state === "lost" || this.#state === "closed") return;
    this.#own = new Stream(this.url, { ...options, checkpoint: this.#checkpoint }).open();
  }
  become(state, why = "") {
    this.#why = state === "live" || state === "recovered" ? "" : why;
    if (state === this.#state) return;
    this.#state = state;
    call(this.options.onstate, state, why);
  }
}

/** This page, and its way to the hub. */
class Tab {
  static #tabs = new Map();
  static of(via) {
    const name = TRANSPORTS[via] ? via : "";
    if (!Tab.#tabs.has(name)) Tab.#tabs.set(name, new Tab(name ? [TRANSPORTS[name]] : Object.values(TRANSPORTS)));
    return Tab.#tabs.get(name);
  }

  #kinds;
  #transport = null;
  #streams = new Map();
  #ids = 0;
  #heardAt = 0;
  #timer = null;
  #isAlone = false;
  #isFirst = true;
  #hasAsked = false;
  #mine = null;

  constructor(kinds) {
    this.#kinds = kinds;
    onWake(globalThis, "addEventListener", () => this.#transport?.post({ type: "wake" }));
    globalThis.addEventListener?.("pagehide", () => this.#disconnect());
    globalThis.addEventListener?.("pageshow", ({ persisted }) => persisted && this.#streams.size && this.#connect());
  }

  add(stream) {
    stream.id = ++this.#ids;
    this.#streams.set(stream.id, stream);
    if (this.#isAlone) return stream.standAlone();
    if (this.#transport) this.#transport.post(stream.subscription);
    else this.#connect();
  }
  remove(stream) {
    if (!this.#streams.delete(stream.id)) return;
    this.#transport?.post({ type: "unsubscribe", id: stream.id });
    if (!this.#streams.size) this.#disconnect();
  }

  #connect() {
    this.#disconnect();
    this.#isFirst = true;
    this.#heardAt = Date.now();
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    for (const kind of this.#kinds.filter((one) => one.isThere())) {
      const mine = {};
      const when = (act) => (...args) => this.#mine === mine && act(...args);
      this.#mine = mine;
      try {
        const transport = new kind({
          message: when((message) => this.#receive(message)),
          reset: () => queueMicrotask(when(() => this.#subscribe())),
          failed: when((why) => this.#fail(kind, why)),
        });
        this.#transport = transport;
        return;
      } catch {
        this.#kinds = this.#kinds.filter((one) => one !== kind);
      }
    }
    this.#mine = null;
    clearInterval(this.#timer);
    this.#isAlone = true;
    for (const stream of this.#streams.values()) stream.standAlone();
  }

  #disconnect() {
    clearInterval(this.#timer);
    this.#transport?.close();
    this.#transport = this.#mine = null;
  }
  #fail(kind, why) {
    this.#kinds = this.#kinds.filter((one) => one !== kind);
    this.#interrupt(why);
    this.#connect();
  }
  #interrupt(why) {
    for (const stream of this.#streams.values()) stream.interrupt(why);
  }

  /** There is a hub, perhaps another one than before. */
  #subscribe() {
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    for (const stream of this.#streams.values()) {
      if (!isFirst) stream.interrupt("the tab that held the connection was closed");
      this.#transport?.post(stream.subscription);
    }
  }

  #receive(message) {
    this.#heardAt = Date.now();
    const { type, ids = [] } = message;
    if (type === "ping") return this.#transport.post({ type: "pong", ids: [...this.#streams.keys()] });
    const mine = ids.map((id) => this.#streams.get(id)).filter(Boolean);
    if (type === "gone") return mine.forEach((stream) => this.#transport.post(stream.subscription));
    mine.forEach((stream) => stream.receive(message));
    if (type === "events") this.#transport?.post({ type: "ack", ids, turn: message.turn });
  }

  /** A page that was asleep hears of it first, and is answered in the meantime. */
  #look() {
    const silentMs = Date.now() - this.#heardAt;
    if (silentMs >= LOOK_MS) for (const stream of this.#streams.values()) stream.wait("the worker with the connection does not answer yet");
    if (silentMs < SILENT_MS) return void (this.#hasAsked = false);
    if (this.#hasAsked) {
      this.#hasAsked = false;
      this.#interrupt("the worker with the connection does not answer");
      this.#connect();
    } else {
      this.#hasAsked = true;
      this.#heardAt = Date.now() - SILENT_MS;
    }
  }
}
