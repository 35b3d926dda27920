import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { linger } from "../../src/reknit/gateway/static/reknit/channels.js";
import { Hub, LAG_MS, PING_MS, SILENT_MS } from "../../src/reknit/gateway/static/reknit/hub.js";

const URL_A = "http://node/sse?topic=a";
const turns = async (count = 5) => {
  for (let at = 0; at < count; at++) await new Promise(setImmediate);
};

/** A WebSocket of a node that does what a test says. */
class Socket {
  static all = [];
  constructor(url) {
    this.url = url;
    this.readyState = 0;
    this.said = [];
    Socket.all.push(this);
  }
  send(text) {
    this.said.push(JSON.parse(text));
  }
  close() {
    this.readyState = 3;
  }
  accept() {
    this.readyState = 1;
    this.onopen();
    return this;
  }
  says(message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
  /** A batch, as [checkpoint, skip, batch] in MessagePack. */
  brings(channel, checkpoint, first, texts) {
    this.says({ type: "channel", channel });
    this.onmessage({ data: message(checkpoint, first, texts) });
  }
  drop(why) {
    this.readyState = 3;
    this.onclose?.({ code: 1006, reason: why });
  }
  get opens() {
    return this.said.filter((one) => one.open);
  }
}

function message(checkpoint, first, texts) {
  const topic = Buffer.from("a");
  const body = Buffer.from(texts.join(""));
  const pad8 = (size) => (size + 7) & ~7;
  const size = 64 + 8 + pad8(4 * texts.length) + body.length;
  const batch = Buffer.alloc(size);
  batch[2] = 1;
  batch.writeUInt32LE(size, 4);
  batch.fill(7, 16, 32);
  batch.writeBigUInt64LE(BigInt(first), 32);
  batch.writeUInt32LE(texts.length, 40);
  batch.writeUInt16LE(1, 44);
  topic.copy(batch, 64);
  texts.forEach((one, at) => batch.writeUInt32LE(one.length, 72 + 4 * at));
  body.copy(batch, 72 + pad8(4 * texts.length));
  const head = Buffer.from([0x93, 0xa0 | checkpoint.length, ...Buffer.from(checkpoint), 0, 0xc5, size >> 8, size & 255]);
  const all = Buffer.concat([head, batch]);
  return all.buffer.slice(all.byteOffset, all.byteOffset + all.length);
}

/** A tab of a site. */
class Tab {
  constructor(hub, isAcking = true) {
    this.hub = hub;
    this.heard = [];
    this.isAcking = isAcking;
  }
  post(one) {
    this.heard.push(one);
    if (one.type === "events" && this.isAcking) this.ack(one);
  }
  ack({ ids, turn }) {
    this.hub.receive(this, { type: "ack", ids, turn });
  }
  subscribe(id, url = URL_A, options = {}) {
    this.hub.receive(this, { type: "subscribe", id, url, ...options });
    return this;
  }
  get texts() {
    return this.heard.filter((one) => one.type === "events").flatMap((one) => one.batch.values);
  }
  get states() {
    return this.heard.filter((one) => one.type === "state").map((one) => one.state);
  }
}

let hub;
beforeEach(() => {
  linger.ms = 1;
  Socket.all = [];
  globalThis.WebSocket = Socket;
  hub = new Hub();
});
afterEach(() => {
  for (const tab of new Set(tabs.splice(0))) hub.gone(tab);
});
const tabs = [];
function tab(isAcking) {
  const one = new Tab(hub, isAcking);
  tabs.push(one);
  return one;
}
async function live(...ids) {
  await turns();
  const socket = Socket.all.at(-1).accept();
  for (const channel of ids) socket.says({ type: "channel", channel }), socket.says({ type: "opened", state: "live", checkpoint: "c0", heartbeat_s: 15 });
  return socket;
}

test("tabs that want one topic share a stream, other topics share the connection", async () => {
  const [one, two] = [tab().subscribe(1), tab().subscribe(1)];
  one.subscribe(2, "http://node/sse?topic=b");
  const socket = await live(1, 2);
  assert.deepEqual(socket.opens.map((open) => open.open), ["a", "b"]);
  assert.equal(socket.url, "ws://node/ws?format=binary");
  socket.brings(1, "c1", 1, ["x", "y"]);
  assert.deepEqual([one.texts, two.texts], [["x", "y"], ["x", "y"]]);
  assert.equal(Socket.all.length, 1);
});

test("a topic is closed when its last tab leaves, and the connection with the last topic", async () => {
  const [one, two] = [tab().subscribe(1), tab().subscribe(1).subscribe(2, "http://node/sse?topic=b")];
  const socket = await live(1, 2);
  hub.receive(one, { type: "unsubscribe", id: 1 });
  assert.equal(socket.said.filter((said) => said.close).length, 0);
  hub.receive(two, { type: "unsubscribe", id: 1 });
  assert.deepEqual(socket.said.at(-1), { close: 1 });
  hub.receive(two, { type: "bye" });
  while (socket.readyState !== 3) await new Promise((done) => setTimeout(done, 1));
  hub.tick(Date.now());
  assert.deepEqual(hub.counts(), { ports: 1, links: 0, feeds: 0, listeners: 0 });
});

test("a cut resumes every topic from its own checkpoint, and says so", async () => {
  const one = tab().subscribe(1).subscribe(2, "http://node/sse?topic=b");
  const socket = await live(1, 2);
  socket.brings(1, "c5", 1, ["x"]);
  socket.drop("");
  while (Socket.all.length < 2) await turns();
  const again = Socket.all[1].accept();
  while (again.opens.length < 2) await turns();
  assert.deepEqual(Object.fromEntries(again.opens.map((open) => [open.open, open.from])), { a: "c5", b: "c0" });
  const channel = again.opens.find((open) => open.open === "a").channel;
  again.says({ type: "channel", channel });
  again.says({ type: "opened", state: "recovered", checkpoint: "c5" });
  again.brings(channel, "c6", 1, ["x", "new"]);
  assert.deepEqual(one.texts, ["x", "new"]);
  const states = one.heard.filter((heard) => heard.state && heard.ids[0] === 1).map((heard) => heard.state);
  assert.deepEqual(states, ["live", "recovering", "recovered"]);
});

test("what a node says no to is told to all who asked, and to nobody else", async () => {
  const [one, two] = [tab().subscribe(1), tab().subscribe(1, "http://node/sse?topic=secret")];
  const socket = await live(1);
  socket.says({ type: "closed", channel: 2, code: 403, why: "you may not read secret" });
  assert.equal(two.states.at(-1), "lost");
  assert.equal(two.heard.at(-1).why, "you may not read secret");
  assert.equal(one.states.at(-1), "live");
});

test("a mark is answered when all tabs have dealt with what came before", async () => {
  const [one, two] = [tab().subscribe(1), tab(false).subscribe(1)];
  const socket = await live(1);
  socket.brings(1, "c1", 1, ["x"]);
  socket.says({ type: "mark", channel: 1, bytes: 500 });
  assert.equal(socket.said.filter((said) => said.taken).length, 0);
  two.ack(two.heard.at(-1));
  assert.deepEqual(socket.said.at(-1), { taken: 500, channel: 1 });
  assert.deepEqual(one.texts, two.texts);
});

test("a tab that holds up others gets a stream of its own, and comes back when it has caught up", async () => {
  const [quick, slow] = [tab().subscribe(1), tab(false).subscribe(1)];
  const socket = await live(1);
  socket.brings(1, "c1", 1, ["x"]);
  socket.says({ type: "mark", channel: 1, bytes: 500 });
  hub.tick(Date.now() + LAG_MS);
  assert.deepEqual(socket.said.at(-1), { taken: 500, channel: 1 });
  assert.equal(slow.states.at(-1), "recovering");
  socket.brings(1, "c2", 2, ["y"]);
  assert.deepEqual([quick.texts, slow.texts], [["x", "y"], ["x"]]);
  assert.equal(socket.opens.length, 1, "a frozen tab gets nothing");
  slow.isAcking = true;
  slow.ack(slow.heard.find((one) => one.type === "events"));
  await turns();
  assert.deepEqual(socket.opens.at(-1), { open: "a", channel: 2, from: "c1", credit: 1 << 20 });
  socket.says({ type: "channel", channel: 2 });
  socket.says({ type: "opened", state: "recovered", checkpoint: "c1" });
  socket.brings(2, "c2", 2, ["y"]);
  assert.deepEqual(slow.texts, ["x", "y"]);
  assert.deepEqual(hub.counts(), { ports: 2, links: 1, feeds: 1, listeners: 2 });
  assert.deepEqual(socket.said.at(-1), { close: 2 });
  socket.brings(1, "c3", 3, ["z"]);
  assert.deepEqual([quick.texts, slow.texts], [["x", "y", "z"], ["x", "y", "z"]]);
});

test("a tab that joins with the checkpoint of the stream shares it, with another one it gets its own", async () => {
  tab().subscribe(1);
  const socket = await live(1);
  socket.brings(1, "c1", 1, ["x"]);
  tab().subscribe(1, URL_A, { checkpoint: "c1" });
  assert.equal(hub.counts().feeds, 1);
  tab().subscribe(1, URL_A, { checkpoint: "c0" });
  assert.equal(hub.counts().feeds, 2);
});

test("a silent tab is dropped, and is told when it comes back", async () => {
  const one = tab().subscribe(1);
  await live(1);
  const now = Date.now();
  hub.tick(now + PING_MS);
  assert.equal(one.heard.at(-1).type, "ping");
  hub.receive(one, { type: "pong", ids: [1] });
  assert.equal(hub.counts().listeners, 1);
  hub.tick(now + 2 * SILENT_MS);
  assert.equal(hub.counts().listeners, 0);
  hub.receive(one, { type: "pong", ids: [1] });
  assert.deepEqual(one.heard.at(-1), { type: "gone", ids: [1] });
});

test("a token gets a ticket, and another token another connection", async () => {
  const asked = [];
  const before = globalThis.fetch;
  globalThis.fetch = async (url, options) => {
    asked.push([String(url), options.headers.Authorization]);
    return { ok: true, json: async () => ({ ticket: "t1" }) };
  };
  try {
    tab().subscribe(1, URL_A, { token: "ann" });
    tab().subscribe(1, URL_A, { token: "bob" });
    await turns();
    assert.deepEqual(asked, [["http://node/ticket", "Bearer ann"], ["http://node/ticket", "Bearer bob"]]);
    assert.deepEqual(Socket.all.map((one) => one.url), Array(2).fill("ws://node/ws?format=binary&ticket=t1"));
  } finally {
    globalThis.fetch = before;
  }
});

test("behind a proxy that passes no WebSocket on, each topic gets a plain stream", async () => {
  const asked = [];
  const before = globalThis.fetch;
  globalThis.fetch = async (url) => {
    asked.push(String(url));
    if (!String(url).includes("/sse")) return { status: 426, headers: new Headers(), text: async () => "" };
    const body = new ReadableStream({
      start: (one) => one.enqueue(new TextEncoder().encode('id: c1\nevent: opened\ndata: {"state":"live"}\n\nid: c2\ndata: {"topic":"a","source":"s","seq":1,"time_us":1,"payload":"x"}\n\n')),
    });
    return { status: 200, headers: new Headers({ "content-type": "text/event-stream" }), body };
  };
  try {
    const one = tab().subscribe(1);
    await turns();
    Socket.all[0].drop("");
    while (!one.texts.length) await new Promise((done) => setTimeout(done, 10));
    assert.deepEqual([one.texts, one.states.at(-1)], [["x"], "live"]);
    assert.ok(asked.includes("http://node/sse?topic=a"));
  } finally {
    globalThis.fetch = before;
  }
});

test("a page that shows another topic keeps its connection", async () => {
  linger.ms = 1_000;
  const one = tab().subscribe(1);
  const socket = await live(1);
  hub.receive(one, { type: "unsubscribe", id: 1 });
  one.subscribe(2, "http://node/ws?topic=b");
  await turns();
  assert.deepEqual(socket.said.slice(-2), [{ close: 1 }, { open: "b", channel: 2, from: "", credit: 1 << 20 }]);
  assert.equal(Socket.all.length, 1);
});
