// The streams of all tabs of a site, in a SharedWorker or in one of the tabs. Tabs are ports; what they say:
//
//   { type: "subscribe", id, url, token, checkpoint, afterLost, quietMs, creditBytes }    { type: "unsubscribe", id }
//   { type: "ack", ids, turn }: the events of that turn were delivered                    { type: "wake" }, { type: "bye" }
//   { type: "pong", ids }: the tab is there, and these are its subscriptions
//
// and what they hear:
//
//   { type: "state", ids, state, why, checkpoint }    { type: "events", ids, turn, batch, checkpoint, repeats }
//   { type: "ping" }    { type: "gone", ids }: these are not known here (any more): subscribe again
//
// A tab that does not acknowledge gets no more than its credit; the rest stays on the node.

import { ChannelSocket } from "./channels.js";
import { FetchConnection, tellRefusal, tellUnreachable } from "./connections.js";
import { Driver } from "./driver.js";
import { Seen } from "./seen.js";

export const TICK_MS = 1_000;
export const PING_MS = 10_000;
/** A tab that says nothing for so long is frozen, or gone: nothing more is sent to it. It may come back. */
export const SILENT_MS = 60_000;
/** A tab that is so much slower than others gets a stream of its own. */
export const LAG_MS = 1_000;
/** How long no WebSocket is tried where a proxy passes none on. */
const PLAIN_MS = 60_000;
const CREDIT_BYTES = 1 << 20;

export class Hub {
  #ports = new Map();
  #links = new Map();
  #deliver;
  #timer = null;

  /** `deliver(ids by port, message)` sends one message to several tabs. */
  constructor(deliver = (byPort, message) => byPort.forEach((ids, port) => port.post({ ...message, ids }))) {
    this.#deliver = deliver;
  }

  /** How many tabs, links, streams and subscriptions there are. */
  counts() {
    const feeds = [...this.#links.values()].flatMap((link) => [...link.feeds]);
    const listeners = feeds.reduce((sum, feed) => sum + feed.listeners.size, 0);
    return { ports: this.#ports.size, links: this.#links.size, feeds: feeds.length, listeners };
  }

  receive(port, message) {
    const tab = this.#tab(port);
    tab.heardAt = Date.now();
    const { type, id } = message;
    if (type === "subscribe") this.#subscribe(tab, message);
    else if (type === "unsubscribe") this.#leave(tab, id);
    else if (type === "ack") this.#acked(tab, message);
    else if (type === "pong") this.#know(tab, message.ids);
    else if (type === "bye") this.gone(port);
    else if (type === "wake") for (const link of this.#links.values()) for (const feed of link.feeds) feed.driver.wake();
  }

  /** A tab is gone. */
  gone(port) {
    const tab = this.#ports.get(port);
    for (const id of tab?.listeners.keys() ?? []) this.#leave(tab, id);
    this.#ports.delete(port);
    if (!this.#ports.size) this.#stop();
  }

  /** Every tab is gone. */
  close() {
    for (const port of [...this.#ports.keys()]) this.gone(port);
  }

  #tab(port) {
    let tab = this.#ports.get(port);
    if (!tab) this.#ports.set(port, (tab = { port, listeners: new Map(), heardAt: 0, pingedAt: Date.now() }));
    this.#timer ??= setInterval(() => this.tick(Date.now()), TICK_MS);
    return tab;
  }

  #subscribe(tab, { id, url, token = "", ...options }) {
    this.#leave(tab, id);
    const { origin, pathname } = new URL(url);
    const key = `${origin}${pathname.replace(/ws$/, "sse")} ${token}`;
    let link = this.#links.get(key);
    if (!link) this.#links.set(key, (link = new Link(url, token, (byPort, message) => this.#deliver(byPort, message))));
    const listener = { id, port: tab.port, feed: null, acked: 0 };
    tab.listeners.set(id, listener);
    link.join(listener, new URL(url).searchParams.get("topic") ?? "", options);
  }

  #leave(tab, id) {
    const listener = tab.listeners.get(id);
    if (!listener) return;
    tab.listeners.delete(id);
    listener.feed.leave(listener);
  }

  #acked(tab, { ids, turn }) {
    this.#know(tab, ids);
    for (const id of ids) {
      const listener = tab.listeners.get(id);
      listener?.feed.ack(listener, turn);
    }
  }

  /** A tab that was silent for long may think that it is still served. */
  #know(tab, ids) {
    const unknown = ids.filter((id) => !tab.listeners.has(id));
    if (unknown.length) tab.port.post({ type: "gone", ids: unknown });
  }

  tick(now) {
    for (const tab of [...this.#ports.values()]) {
      if (now - tab.heardAt > SILENT_MS) this.gone(tab.port);
      else if (now - tab.pingedAt >= PING_MS) {
        tab.pingedAt = now;
        tab.port.post({ type: "ping" });
      }
    }
    for (const [key, link] of this.#links) {
      if (link.isIdle) this.#links.delete(key);
      for (const feed of [...link.feeds]) feed.split(now);
    }
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = null;
  }
}

/** The connection to one address with one token. */
class Link {
  #socket = null;
  #plainUntil = 0;

  constructor(url, token, deliver) {
    this.url = new URL(url);
    this.token = token;
    this.deliver = deliver;
    this.feeds = new Set();
  }

  get isIdle() {
    return !this.feeds.size && !this.#socket;
  }

  /** A tab wants a topic: it joins a stream that is at its place, or gets a new one. */
  join(listener, topic, options) {
    const { checkpoint = "", ...rest } = options;
    const kind = JSON.stringify([topic, rest]);
    const found = [...this.feeds].find((feed) => feed.kind === kind && feed.accepts(checkpoint));
    (found ?? this.add(kind, topic, options)).join(listener);
  }

  add(kind, topic, options, after = null) {
    const feed = new Feed(this, kind, topic, options, after);
    this.feeds.add(feed);
    return feed;
  }

  /** Connects one stream. It gets a connection of its own only where a proxy passes no WebSocket on. */
  connect(feed, checkpoint, on) {
    if (Date.now() < this.#plainUntil) {
      const url = new URL(this.url);
      url.pathname = url.pathname.replace(/ws$/, "sse");
      url.search = new URLSearchParams({ topic: feed.topic, ...(checkpoint && { from: checkpoint }) });
      return new FetchConnection(url, { token: this.token }, on);
    }
    const refused = (code, why, retryAfterMs) => {
      if (code === 426) this.#plainUntil = Date.now() + PLAIN_MS;
      on.refused(code, why, retryAfterMs);
    };
    return this.#connected().open(feed.topic, checkpoint, feed.creditBytes, { ...on, refused });
  }

  #connected() {
    if (!this.#socket) {
      const socket = new LinkSocket(this.url, this.token, () => {
        if (this.#socket === socket) this.#socket = null;
      });
      this.#socket = socket;
    }
    return this.#socket;
  }
}

/** A channel socket that gets a ticket first, if there is a token: a WebSocket can't send one. */
class LinkSocket {
  #opening;
  constructor(url, token, onend) {
    const address = new URL(url);
    address.pathname = url.pathname.replace(/sse$/, "ws");
    address.search = "?format=binary";
    this.#opening = this.#open(address, token, onend);
  }
  async #open(address, token, onend) {
    if (token) {
      const url = new URL(address);
      url.pathname = address.pathname.replace(/ws$/, "ticket");
      url.search = "";
      let failure = null;
      const keep = (name) => (...args) => (failure ??= [name, args]);
      try {
        const answer = await fetch(url, { method: "POST", headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
        if (answer.ok) address.searchParams.set("ticket", (await answer.json()).ticket);
        else await tellRefusal(url, answer, { refused: keep("refused") }, "ticket");
      } catch (error) {
        await tellUnreachable(url, error, { refused: keep("refused"), cut: keep("cut") });
      }
      if (failure) {
        onend();
        return { failure };
      }
    }
    return { socket: new ChannelSocket(address, token, onend) };
  }
  open(topic, checkpoint, credit, on) {
    let channel = null;
    let isClosed = false;
    this.#opening.then(({ failure, socket }) => {
      if (isClosed) return;
      if (failure) on[failure[0]](...failure[1]);
      else channel = socket.open(topic, checkpoint, credit, on);
    });
    return {
      taken: (bytes) => channel?.taken(bytes),
      close: () => {
        isClosed = true;
        channel?.close();
      },
    };
  }
}

/** One stream, for all tabs that want its topic and are at its place. */
class Feed {
  #connection = null;
  #marks = [];
  #isWaiting = false;
  #seen = new Seen();
  #repeats = 0;

  constructor(link, kind, topic, options, after) {
    this.link = link;
    this.kind = kind;
    this.topic = topic;
    this.options = options;
    this.creditBytes = options.creditBytes ?? CREDIT_BYTES;
    this.listeners = new Set();
    this.turn = after?.turn ?? 0;
    this.driver = new Driver(options, {
      connect: (checkpoint) => this.#connect(checkpoint),
      disconnect: () => this.#disconnect(),
      state: (state, why) => this.#tell(this.listeners, state, why),
      why: (why) => this.isOpen || this.#tell(this.listeners, this.machine.state, why),
    });
  }
  get machine() {
    return this.driver.machine;
  }
  get isOpen() {
    return this.machine.state === "live" || this.machine.state === "recovered";
  }

  /** Whether a tab that is after this checkpoint, or anywhere, may join. */
  accepts(checkpoint) {
    const { state } = this.machine;
    if (state === "lost" || state === "closed") return false;
    return checkpoint ? this.isOpen && checkpoint === this.machine.checkpoint : !this.options.checkpoint;
  }

  join(listener) {
    listener.feed = this;
    listener.acked = this.turn;
    this.listeners.add(listener);
    const { state, why } = this.machine;
    if (state === "closed") this.driver.start();
    else this.#tell([listener], state === "recovered" ? "live" : state, why);
  }

  leave(listener) {
    this.listeners.delete(listener);
    if (this.listeners.size) return this.#answerMarks();
    this.link.feeds.delete(this);
    this.driver.stop();
  }

  /** A tab has delivered everything up to and including this turn. */
  ack(listener, turn) {
    listener.acked = Math.max(listener.acked, turn);
    this.#answerMarks();
    if (this.#isWaiting && this.#hasRoom()) {
      this.#isWaiting = false;
      this.#connect(this.machine.checkpoint);
    }
    this.#merge();
  }

  #hasRoom() {
    return [...this.listeners].some((one) => one.acked >= this.turn);
  }

  #connect(checkpoint) {
    this.#connection = null;
    this.#marks = [];
    if (!this.#hasRoom()) {
      this.#isWaiting = true; // frozen tabs: what comes now would only wait in the browser
      return;
    }
    const token = {};
    const isCurrent = () => this.#connection?.token === token;
    const inputs = this.driver.inputs(isCurrent, (batch, checkpoint) => this.#events(batch, checkpoint));
    const opened = (answer) => {
      inputs.opened(answer);
      this.#merge();
    };
    const mark = (bytes) => {
      if (!isCurrent()) return;
      this.#marks.push({ bytes, turn: this.turn, at: Date.now() });
      this.#answerMarks();
    };
    this.#connection = { token };
    const made = this.link.connect(this, checkpoint, { ...inputs, opened, mark });
    if (isCurrent()) this.#connection = { token, taken: (bytes) => made.taken?.(bytes), close: () => made.close() };
    else made.close();
  }

  #disconnect() {
    const connection = this.#connection;
    this.#connection = null;
    this.#isWaiting = false;
    connection?.close?.();
  }

  /** What a connection brings: a batch, or, without a WebSocket, single events. */
  #events(found, checkpoint) {
    for (const batch of Array.isArray(found) ? found.map(asBatch) : [found]) {
      for (const fresh of this.#unseen(batch)) {
        this.turn += 1;
        this.#send(this.listeners, { type: "events", turn: this.turn, batch: fresh, checkpoint, repeats: this.#repeats });
      }
    }
  }

  /** The batch, or its parts that did not come before. */
  #unseen(batch) {
    const { topic, source, first, values } = batch;
    const fresh = this.#seen.add(`${topic} ${source}`, first, values.length);
    if (fresh.length === 1 && fresh[0][1] - fresh[0][0] === values.length) return values.length ? [batch] : [];
    this.#repeats += fresh.reduce((left, [start, stop]) => left - (stop - start), values.length);
    return fresh.map(([start, stop]) => cut(batch, start - first, stop - first));
  }

  #answerMarks() {
    const taken = Math.min(...[...this.listeners].map((one) => one.acked));
    while (this.#marks.length && this.#marks[0].turn <= taken) this.#connection?.taken?.(this.#marks.shift().bytes);
  }

  /** Tabs that hold up others get a stream of their own, from their place. */
  split(now) {
    const [mark] = this.#marks;
    if (!mark || now - mark.at < LAG_MS) return;
    const late = [...this.listeners].filter((one) => one.acked < mark.turn);
    if (!late.length || late.length === this.listeners.size) return;
    for (const listener of late) {
      const feed = this.link.add(this.kind, this.topic, { ...this.options, checkpoint: this.machine.checkpoint }, this);
      const { acked } = listener;
      this.listeners.delete(listener);
      listener.feed = feed;
      feed.listeners.add(listener);
      listener.acked = acked;
      this.#tell([listener], "recovering", "this page is slower than others of its site: it gets a stream of its own");
      feed.driver.start();
    }
    this.#answerMarks();
  }

  /** A stream that has caught up with another one of its kind ends in it. */
  #merge() {
    if (!this.isOpen || [...this.listeners].some((one) => one.acked < this.turn)) return;
    const at = this.machine.checkpoint;
    const other = [...this.link.feeds].find(
      (one) => one !== this && one.kind === this.kind && one.isOpen && one.machine.checkpoint === at,
    );
    if (!other) return;
    for (const listener of [...this.listeners]) {
      this.listeners.delete(listener);
      listener.feed = other;
      listener.acked = other.turn;
      other.listeners.add(listener);
    }
    this.link.feeds.delete(this);
    this.driver.stop();
  }

  #tell(listeners, state, why) {
    if (this.listeners.size) this.#send(listeners, { type: "state", state, why, checkpoint: this.machine.checkpoint });
  }

  #send(listeners, message) {
    const byPort = new Map();
    for (const { port, id } of listeners) byPort.set(port, [...(byPort.get(port) ?? []), id]);
    this.link.deliver(byPort, message);
  }
}

function cut(batch, start, stop) {
  const part = { ...batch, first: batch.first + start };
  for (const name of ["values", "times", "headers"]) if (batch[name]) part[name] = batch[name].slice(start, stop);
  return part;
}

function asBatch({ topic, source, seq, time_us, headers, payload, bytes }) {
  const batch = { topic, source, first: seq, time_us, values: [payload ?? bytes] };
  return headers ? { ...batch, headers: [headers] } : batch;
}
