// The ways from a tab to the hub. `on` has message, reset (there is a new hub: subscribe again) and failed.

import { Hub } from "./hub.js";

/** A hub in a SharedWorker. */
export class WorkerTransport {
  static isThere = () => Boolean(globalThis.SharedWorker);

  constructor(on) {
    // throws for a module of a foreign site: a worker has to be of the page's own
    this.worker = new SharedWorker(new URL("./worker.js", import.meta.url), { type: "module", name: "reknit" });
    this.worker.onerror = () => on.failed("the SharedWorker could not be started");
    this.worker.port.onmessage = ({ data }) => on.message(data);
    on.reset();
  }
  post(message) {
    this.worker?.port.postMessage(message);
  }
  close() {
    this.post({ type: "bye" });
    this.worker.port.close();
    this.worker = null;
  }
}

/** A hub in the tab that holds a lock. When that is closed, another tab gets the lock. */
export class BroadcastTransport {
  static isThere = () => Boolean(globalThis.BroadcastChannel && globalThis.navigator?.locks);

  #on;
  #me = Math.random().toString(36).slice(2);
  #generation = "";
  #hub = null;
  #own = { post: (message) => this.#toSelf(message) };
  #others = new Map();
  #release = null;
  #abort = new AbortController();

  constructor(on) {
    this.#on = on;
    const name = `reknit ${new URL(".", import.meta.url)}`; // tabs with another version have a hub of their own
    this.channel = new BroadcastChannel(name);
    this.channel.onmessage = ({ data }) => this.#receive(data);
    this.#say({ to: "anybody" });
    const { signal } = this.#abort;
    navigator.locks.request(name, { signal }, () => this.#lead()).catch((error) => signal.aborted || on.failed(String(error)));
  }
  post(message) {
    if (this.#hub) queueMicrotask(() => this.#hub?.receive(this.#own, message));
    else this.#say({ to: "hub", message });
  }
  close() {
    if (this.#hub) this.#hub.close();
    else this.post({ type: "bye" });
    this.channel.close();
    this.#hub = null;
    this.#abort.abort();
    this.#release?.();
  }

  #say(message) {
    this.channel.postMessage({ from: this.#me, generation: this.#generation, ...message });
  }
  #toSelf(message) {
    queueMicrotask(() => this.#on.message(message));
  }

  #lead() {
    this.#generation = `${Date.now()} ${this.#me}`;
    this.#hub = new Hub((byPort, message) => this.#deliver(byPort, message));
    this.#say({ to: "all" });
    this.#on.reset();
    return new Promise((release) => (this.#release = release));
  }
  /** One message for all other tabs: a broadcast is copied to each of them, whoever it is for. */
  #deliver(byPort, message) {
    const ids = {};
    for (const [port, own] of byPort) {
      if (port === this.#own) this.#toSelf({ ...message, ids: own });
      else ids[port.page] = own;
    }
    if (Object.keys(ids).length) this.#say({ to: ids, message });
  }

  #receive({ to, from, generation, message }) {
    if (this.#hub) {
      if (to === "anybody") this.#say({ to: "all" });
      else if (to === "hub" && generation === this.#generation) this.#hub.receive(this.#other(from), message);
    } else if (to === "all" && generation !== this.#generation) {
      this.#generation = generation;
      this.#on.reset();
    } else if (to?.[this.#me] && generation === this.#generation) this.#on.message({ ...message, ids: to[this.#me] });
  }
  #other(page) {
    let port = this.#others.get(page);
    if (!port) {
      port = { page, post: ({ ids = [], ...message }) => this.#say({ to: { [page]: ids }, message }) };
      this.#others.set(page, port);
    }
    return port;
  }
}
