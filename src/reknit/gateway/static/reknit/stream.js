import { EventSourceConnection, FetchConnection, WebSocketConnection } from "./connections.js";
import { call, Driver } from "./driver.js";
import { Seen } from "./seen.js";

const BY_NAME = { eventsource: EventSourceConnection, fetch: FetchConnection, websocket: WebSocketConnection };
/** Bytes of batches that may be on their way to the page: what is beyond waits on the node. */
export const CREDIT_BYTES = 1 << 20;

/** A stream with a connection of its own. */
export class Stream {
  #driver;
  #connection = null;
  #hasFailed = false;
  #wake = () => this.#driver.wake();

  constructor(url, options = {}) {
    this.url = new URL(url, globalThis.location?.href);
    this.options = options;
    this.seen = new Seen();
    this.repeats = 0;
    this.#driver = new Driver(options, {
      connect: (checkpoint) => this.#connect(checkpoint),
      disconnect: () => this.#disconnect(),
      state: (state, why) => {
        if (state === "live" || state === "recovered") this.#hasFailed = false;
        call(options.onstate, state, why);
      },
    });
  }
  get state() {
    return this.#driver.machine.state;
  }
  /** Why it is not live: what came last. */
  get why() {
    return this.#driver.machine.why;
  }
  get checkpoint() {
    return this.#driver.machine.checkpoint;
  }
  open() {
    onWake(globalThis, "addEventListener", this.#wake);
    this.#driver.start();
    return this;
  }
  close() {
    onWake(globalThis, "removeEventListener", this.#wake);
    this.#driver.stop();
  }

  async #connect(checkpoint) {
    const token = (this.#connection = Symbol("connecting"));
    const url = new URL(this.url);
    const via = this.#via();
    const on = this.#inputs(() => this.#connection === token || this.#connection?.token === token);
    if (checkpoint) url.searchParams.set("from", checkpoint);
    if (via === "websocket") {
      url.pathname = url.pathname.replace(/\/sse$/, "/ws");
      if (this.options.onbatch) url.searchParams.set("format", "binary");
      url.searchParams.set("credit", String(this.options.creditBytes ?? CREDIT_BYTES));
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
    const { onbatch, token } = this.options;
    const via = BY_NAME[this.options.via] ? this.options.via : onbatch ? "websocket" : "eventsource";
    if (via === "eventsource" && (token || this.#hasFailed || !globalThis.EventSource)) return "fetch";
    return via;
  }

  #inputs(isCurrent) {
    const inputs = this.#driver.inputs(isCurrent, (events, checkpoint) => this.#deliver(events, checkpoint));
    const cut = (why) => {
      if (isCurrent()) this.#hasFailed ||= this.state !== "live" && this.state !== "recovered";
      inputs.cut(why);
    };
    return { ...inputs, cut };
  }

  /** Delivers what was not delivered before. */
  #deliver(events, checkpoint) {
    const fresh = events.filter(({ topic, source, seq }) => this.seen.add(`${topic} ${source}`, seq).length);
    this.repeats += events.length - fresh.length;
    deliver(this.options, fresh, checkpoint);
  }

  #disconnect() {
    this.#connection?.close?.();
    this.#connection = null;
  }
}

/** Calls the application for events. */
export function deliver(options, events, checkpoint) {
  if (!events.length) return;
  if (options.onbatch) call(options.onbatch, events, checkpoint);
  else for (const event of events) call(options.onevent, event, checkpoint);
}

/** A browser slows down the timers of hidden pages, and stops them while a laptop sleeps: then it is high time. */
export function onWake(page, does, wake) {
  page[does]?.("online", wake);
  page.document?.[does]("visibilitychange", wake);
  page.document?.[does]("resume", wake);
}
