// The ways to reach a server. Each calls `on`: opened, events, heard, cut, refused; and stops at `close()`.

import { decodeMessage } from "./batch.js";
import { eventOfRow, eventsOf } from "./events.js";

const QUOTED_MAX = 120;

/** The browser's EventSource. It can't say why it failed: the next attempt after a failure is made with fetch(). */
export class EventSourceConnection {
  constructor(url, options, on) {
    this.source = new EventSource(url, { withCredentials: false });
    this.source.addEventListener("opened", (one) => on.opened({ ...JSON.parse(one.data), checkpoint: one.lastEventId }));
    this.source.addEventListener("heartbeat", (one) => on.heard(one.lastEventId));
    this.source.addEventListener("closing", (one) => this.#end(() => on.cut(JSON.parse(one.data).why)));
    this.source.onmessage = (one) => on.events([eventOfRow(JSON.parse(one.data))], one.lastEventId);
    this.source.onerror = () => this.#end(() => on.cut("disconnected"));
  }
  #end(tell) {
    this.close(); // the browser would reconnect by itself, or give up for good after a 502
    tell();
  }
  close() {
    this.source.close();
  }
}

/** fetch() and a reader: it can send a token in a header, and says what answered in place of the server. */
export class FetchConnection {
  constructor(url, options, on) {
    this.on = on;
    this.abort = new AbortController();
    this.#run(url, options).catch((error) => {
      if (!this.abort.signal.aborted) on.cut(String(error));
    });
  }
  async #run(url, options) {
    const headers = { Accept: "text/event-stream" };
    if (options.token) headers.Authorization = `Bearer ${options.token}`;
    const { signal } = this.abort;
    let answer;
    try {
      answer = await fetch(url, { headers, signal, cache: "no-store" });
    } catch (error) {
      return void (signal.aborted || (await tellUnreachable(url, error, this.on)));
    }
    if (answer.status !== 200 || !(answer.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
      return await tellRefusal(url, answer, this.on, "stream");
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return this.on.cut("the connection ended");
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) if (!signal.aborted) this.#block(block);
    }
  }
  #block(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
    }
    const data = fields.data === undefined ? null : JSON.parse(fields.data);
    if (fields.event === "opened") this.on.opened({ ...data, checkpoint: fields.id });
    else if (fields.event === "closing") this.on.cut(data.why);
    else if (fields.event === "heartbeat") this.on.heard(fields.id);
    else if (data !== null) this.on.events([eventOfRow(data)], fields.id);
  }
  close() {
    this.abort.abort();
  }
}

/** A WebSocket: the browser's limit of six connections does not count it, and batches come as one message. */
export class WebSocketConnection {
  constructor(url, options, on) {
    this.on = on;
    let isOpen = false;
    this.socket = openSocket(url);
    this.socket.onmessage = ({ data }) => {
      if (typeof data !== "string") {
        const { checkpoint, batch } = decodeMessage(data);
        return on.events(eventsOf(batch), checkpoint);
      }
      const { type, ...rest } = JSON.parse(data);
      isOpen ||= type === "opened";
      if (type === "opened") on.opened(rest);
      else if (type === "event") on.events([eventOfRow(rest)], rest.checkpoint);
      else if (type === "heartbeat") on.heard(rest.checkpoint);
      else if (type === "mark") this.socket.send(JSON.stringify({ taken: rest.bytes, channel: rest.channel }));
    };
    this.socket.onclose = ({ code, reason }) => {
      if (isOpen || reason) on.cut(reason || `disconnected (${code})`);
      else tellSocketRefusal(url, options.token, { ...on, isClosed: () => this.isClosed });
    };
  }
  close() {
    this.isClosed = true;
    this.socket.onclose = this.socket.onmessage = null;
    this.socket.close();
  }
}

export function openSocket(url) {
  const socket = new WebSocket(String(url).replace(/^http/, "ws"));
  socket.binaryType = "arraybuffer";
  return socket;
}

/** A browser hides the answer to a WebSocket that was refused: the same request without the upgrade tells it. */
export async function tellSocketRefusal(url, token, on) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const asked = new URL(url);
  if (token) asked.searchParams.delete("ticket"); // it was redeemed
  try {
    const answer = await fetch(asked, { headers, cache: "no-store" });
    if (on.isClosed()) return;
    if (answer.status === 426) on.refused(426, `${place(url)} is there, but a proxy passes no WebSocket on`, 0);
    else await tellRefusal(url, answer, on, "WebSocket");
  } catch (error) {
    if (!on.isClosed()) await tellUnreachable(url, error, on);
  }
}

/** Says which address answered, and with what. */
export async function tellRefusal(url, answer, on, expected) {
  const body = await answer.text();
  const words = body.replace(/<[^<>]*>|\s+/g, " ").trim().slice(0, QUOTED_MAX);
  const to = answer.redirected ? ` after a redirect to ${place(answer.url)}` : "";
  const why = `${place(url)} answered HTTP ${answer.status}${to}, which is no ${expected}${words ? `: ${words}` : ""}`;
  on.refused(answer.status, why, 1000 * (Number(answer.headers.get("retry-after")) || 0));
}

/** A browser hides what failed. Three causes can be told apart: no server, a redirect elsewhere, a foreign site. */
export async function tellUnreachable(url, error, on) {
  const own = globalThis.location?.origin;
  const origin = new URL(url).origin;
  try {
    if (own && origin !== own) {
      await fetch(`${origin}/`, { mode: "no-cors", cache: "no-store" });
      return on.refused(403, `${origin} answers, but not to pages of ${own}: add it to http.origins there`);
    }
    const answer = await fetch(url, { redirect: "manual", cache: "no-store" });
    await answer.body?.cancel();
    if (answer.type === "opaqueredirect") {
      return on.refused(302, `${place(url)} redirects to another site, which is no stream; perhaps you have to log in`);
    }
  } catch {
    // no server
  }
  on.cut(`${place(url)} can't be reached: ${error.message ?? error}`);
}

/** An address without its parameters, which may hold a ticket. */
function place(url) {
  const { origin, pathname } = new URL(url);
  return origin + pathname;
}
