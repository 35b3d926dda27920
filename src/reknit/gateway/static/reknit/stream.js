import { EventSourceConnection, FetchConnection, WebSocketConnection } from "./connections.js";
import { StreamMachine } from "./machine.js";
import { Seen } from "./seen.js";

const BY_NAME = { eventsource: EventSourceConnection, fetch: FetchConnection, websocket: WebSocketConnection };
/** Bytes of batches that may be on their way to the page: what is beyond waits on the node. */
const CREDIT_BYTES = 1 << 20;

/** The driver of one machine: it opens connections, keeps its timer, and calls the application. */
export class Stream {
  #machine;
  #connection = null;
  #timer = null;
  #hasFailed = false;
  #hurry = () => this.#step(() => this.#machine.hurry(Date.now()));

  constructor(url, options = {}) {
    this.url = new URL(url, globalThis.location?.href);
    this.options = options;
    this.seen = new Seen();
    this.repeats = 0;
    this.#machine = new StreamMachine(options);
  }
  get state() {
    return this.#machine.state;
  }
  /** Why it is not live: what came last. */
  get why() {
    return this.#machine.why;
  }
  get checkpoint() {
    return this.#machine.checkpoint;
  }
  open() {
    globalThis.addEventListener?.("online", this.#hurry);
    this.#step(() => this.#machine.start(Date.now()));
    return this;
  }
  close() {
    globalThis.removeEventListener?.("online", this.#hurry);
    this.#step(() => this.#machine.stop());
  }

  #step(change) {
    change();
    for (const effect of this.#machine.takeEffects()) {
      if (effect.type === "connect") this.#connect(effect.checkpoint);
      else if (effect.type === "disconnect") this.#disconnect();
      else call(this.options.onstate, effect.state, effect.why);
    }
    clearTimeout(this.#timer);
    const { due } = this.#machine;
    if (due !== null) {
      this.#timer = setTimeout(() => this.#step(() => this.#machine.tick(Date.now())), Math.max(0, due - Date.now()));
    }
  }

  async #connect(checkpoint) {
    const token = (this.#connection = Symbol("connecting"));
    const url = new URL(this.url);
    const via = this.#via();
    const on = this.#inputs(() => this.#connection === token || this.#connection?.token === token);
    if (checkpoint) url.searchParams.set("from", checkpoint);
    if (via === "websocket") {
      url.pathname = url.pathname.replace(/\/sse$/, "/ws");
      if (this.options.onbatch) {
        url.searchParams.set("format", "binary");
        url.searchParams.set("credit", String(this.options.creditBytes ?? CREDIT_BYTES));
      }
    }
    try {
      if (this.options.ticket) url.searchParams.set("ticket", await this.options.ticket());
    } catch (error) {
      return on.cut(`no ticket: ${error.message ?? error}`);
    }
    if (this.#connection !== token) return;
    const connection = new BY_NAME[via](url, this.options, on);
    connection.token = token;
    if (this.#connection === token) this.#connection = connection;
    else connection.close();
  }

  #via() {
    const { via = this.options.onbatch ? "websocket" : "eventsource", token } = this.options;
    if (via === "eventsource" && (token || this.#hasFailed || !globalThis.EventSource)) return "fetch";
    return via;
  }

  #inputs(isCurrent) {
    const machine = this.#machine;
    const when = (change) => (...args) => isCurrent() && this.#step(() => change(...args));
    return {
      opened: when((answer) => {
        this.#hasFailed = false;
        machine.opened(answer, Date.now());
      }),
      heard: when((checkpoint) => machine.heard(Date.now(), checkpoint)),
      event: when((event, checkpoint) => {
        machine.heard(Date.now(), checkpoint);
        this.#deliver([event], checkpoint);
      }),
      batch: when((events, checkpoint) => {
        machine.heard(Date.now(), checkpoint);
        this.#deliver(events, checkpoint);
      }),
      cut: when((why) => {
        this.#hasFailed ||= machine.state !== "live" && machine.state !== "recovered";
        machine.cut(why, Date.now());
      }),
      refused: when((code, why, retryAfterMs) => machine.refused(code, why, Date.now(), retryAfterMs)),
      told: (type, message) => isCurrent() && call(this.options.ontold, type, message),
    };
  }

  /** Delivers what was not delivered before. */
  #deliver(events, checkpoint) {
    const fresh = events.filter((event) => this.seen.add(`${event.source}:${event.seq}`));
    this.repeats += events.length - fresh.length;
    if (!fresh.length) return;
    if (this.options.onbatch) call(this.options.onbatch, fresh, checkpoint);
    else for (const event of fresh) call(this.options.onevent, event, checkpoint);
  }

  /** Says something to the node, on a WebSocket. */
  send(message) {
    this.#connection?.send?.(message);
  }

  #disconnect() {
    this.#connection?.close?.();
    this.#connection = null;
  }
}

/** An error of the application is reported, and does not stop the stream. */
function call(listener, ...args) {
  try {
    listener?.(...args);
  } catch (error) {
    (globalThis.reportError ?? console.error)(error);
  }
}
