// One WebSocket with several streams on it: docs/reference/tunnels.md, "Channels".

import { decodeMessage } from "./batch.js";
import { openSocket, tellSocketRefusal } from "./connections.js";

/** How long a connection without streams stays: a page that shows something else now closes one and opens another. */
export const linger = { ms: 2_000 };

/** `onend` is called once, when the connection is gone. */
export class ChannelSocket {
  #on = new Map();
  #socket;
  #current = 0;
  #numbers = 0;
  #waiting = [];
  #isEnded = false;
  #token;
  #url;
  #onend;

  constructor(url, token, onend) {
    this.#url = url;
    this.#token = token;
    this.#onend = onend;
    this.#socket = openSocket(url);
    this.#socket.onopen = () => this.#waiting.splice(0).forEach((one) => this.#socket.send(one));
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code, reason }) => this.#ended(reason || `disconnected (${code})`);
  }

  /** Opens a stream. `on` has opened, events, heard, mark, cut and refused. */
  open(topic, checkpoint, credit, on) {
    if (this.#isEnded) {
      queueMicrotask(() => on.cut("disconnected"));
      return { taken() {}, close() {} };
    }
    const channel = ++this.#numbers;
    this.#on.set(channel, on);
    this.#say({ open: topic, channel, from: checkpoint, credit });
    return {
      taken: (bytes) => this.#on.has(channel) && this.#say({ taken: bytes, channel }),
      close: () => {
        if (!this.#on.delete(channel)) return;
        this.#say({ close: channel });
        this.#linger();
      },
    };
  }

  #say(message) {
    const text = JSON.stringify(message);
    if (this.#socket.readyState === 1) this.#socket.send(text);
    else this.#waiting.push(text);
  }

  #receive(data) {
    if (typeof data !== "string") {
      const { checkpoint, batch } = decodeMessage(data);
      return this.#on.get(this.#current)?.events(batch, checkpoint);
    }
    const { type, channel = this.#current, ...rest } = JSON.parse(data);
    const on = this.#on.get(channel);
    if (type === "channel") this.#current = channel;
    else if (type === "opened") on?.opened(rest);
    else if (type === "heartbeat") on?.heard(rest.checkpoint);
    else if (type === "mark") on?.mark(rest.bytes);
    else if (type === "closed") this.#closed(channel, on, rest);
  }

  #closed(channel, on, { code, why }) {
    this.#on.delete(channel);
    if (code) on?.refused(code, why, 0);
    else on?.cut(why);
    this.#linger();
  }

  #linger() {
    if (!this.#on.size) setTimeout(() => this.#on.size || this.#end(), linger.ms);
  }

  /** Every stream hears why. What answers in the place of a WebSocket is asked for once. */
  #ended(why) {
    const all = [...this.#on.values()];
    const hasOpened = this.#waiting.length === 0;
    this.#on.clear();
    this.#end();
    if (hasOpened) return all.forEach((on) => on.cut(why));
    const every = (name) => (...args) => all.forEach((on) => on[name](...args));
    tellSocketRefusal(this.#url, this.#token, { cut: every("cut"), refused: every("refused"), isClosed: () => false });
  }

  #end() {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#socket.onclose = this.#socket.onmessage = this.#socket.onopen = null;
    this.#socket.close();
    this.#onend();
  }
}
