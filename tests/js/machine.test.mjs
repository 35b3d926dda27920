import assert from "node:assert/strict";
import { test } from "node:test";
import { ANSWER_MS, GOOD_MS, NO_ANSWER, PATIENCE_MS, QUIET_UNTOLD_MS, StreamMachine } from "../../src/reknit/gateway/static/reknit/machine.js";

/** A machine with all its effects, and a clock that moves only when a test says so. */
class Driven {
  constructor(options = {}) {
    this.machine = new StreamMachine({ random: () => 0.5, ...options });
    this.now = 0;
    this.states = [];
    this.connects = [];
    this.disconnects = 0;
    this.do((machine) => machine.start(this.now));
  }
  do(change) {
    change(this.machine);
    for (const effect of this.machine.takeEffects()) {
      if (effect.type === "state") this.states.push(effect.state);
      else if (effect.type === "connect") this.connects.push(effect.checkpoint);
      else this.disconnects += 1;
    }
  }
  open(answer = {}) {
    this.do((machine) => machine.opened({ state: "live", checkpoint: "c1", heartbeat_s: 15, ...answer }, this.now));
    return this;
  }
  cut(why = "reset") {
    this.do((machine) => machine.cut(why, this.now));
  }
  refused(code, why = "what came", retryAfterMs = 0) {
    this.do((machine) => machine.refused(code, why, this.now, retryAfterMs));
  }
  wait() {
    this.now = Math.max(this.now, this.machine.due ?? this.now);
    this.do((machine) => machine.tick(this.now));
  }
}

test("a stream that is cut off resumes after its last checkpoint", () => {
  const driven = new Driven().open();
  driven.do((machine) => machine.heard(1, "c2"));
  driven.cut();
  driven.wait();
  driven.open({ state: "recovered", checkpoint: "c2" });
  assert.deepEqual(driven.states, ["live", "recovering", "recovered"]);
  assert.deepEqual(driven.connects, ["", "c2"]);
});

test("a server that can't resume is told once, and nothing more comes", () => {
  const driven = new Driven().open();
  driven.cut();
  driven.wait();
  driven.open({ state: "lost", why: "retention", checkpoint: "c9" });
  driven.cut("closed by us");
  driven.open();
  assert.deepEqual(driven.states, ["live", "recovering", "lost"]);
  assert.equal(driven.machine.why, "retention");
  assert.equal(driven.machine.due, null);
  assert.equal(driven.machine.checkpoint, "c1");
});

test("a fresh start in place of a recovery is lost", () => {
  const driven = new Driven({ checkpoint: "c1" }).open({ state: "live" });
  assert.deepEqual(driven.states, ["lost"]);
});

test("afterLost continues with new events, and says so", () => {
  const driven = new Driven({ checkpoint: "c1", afterLost: "live" }).open({ state: "lost", why: "purged", checkpoint: "c7" });
  assert.deepEqual(driven.states, ["lost", "live"]);
  assert.equal(driven.machine.checkpoint, "c7");
});

test("live is never older than two heartbeats", () => {
  const driven = new Driven().open({ heartbeat_s: 15 });
  driven.now = 29_000;
  driven.do((machine) => machine.heard(driven.now));
  driven.now = 58_999;
  driven.do((machine) => machine.tick(driven.now));
  assert.equal(driven.machine.state, "live");
  driven.wait();
  assert.deepEqual(driven.states, ["live", "recovering"]);
  assert.equal(driven.machine.why, "the server sent nothing for 30 s");
  assert.equal(driven.disconnects, 1);
});

test("a heartbeat that is not told, or is no number, is awaited for a reasonable time", () => {
  for (const told of [undefined, "soon", 0, -1, NaN]) assert.equal(new Driven().open({ heartbeat_s: told }).machine.due, QUIET_UNTOLD_MS);
  assert.equal(new Driven().open({ heartbeat_s: 0.1 }).machine.due, 2_000);
  assert.equal(new Driven().open({ heartbeat_s: Infinity }).machine.due, 3_600_000);
});

test("what waits for its first answer says so within seconds, and goes on waiting", () => {
  const driven = new Driven();
  driven.wait();
  assert.equal(driven.now, PATIENCE_MS);
  assert.deepEqual([driven.states, driven.machine.why, driven.disconnects], [["waiting"], NO_ANSWER, 0]);
  driven.open();
  assert.deepEqual(driven.states, ["waiting", "live"]);
});

test("an attempt that hangs is given up, and another one follows", () => {
  const driven = new Driven();
  driven.wait();
  driven.wait();
  assert.equal(driven.now, ANSWER_MS);
  assert.equal(driven.disconnects, 1);
  driven.wait();
  assert.equal(driven.connects.length, 2);
});

test("a 5xx is tried again in one state, another answer is an error", () => {
  for (const code of [408, 426, 429, 500, 502, 503]) {
    const driven = new Driven();
    for (let round = 0; round < 5; round++) {
      driven.refused(code);
      driven.wait();
    }
    assert.deepEqual([driven.states, driven.connects.length], [["waiting"], 6]);
  }
  for (const code of [200, 302, 401, 403, 404]) {
    const driven = new Driven().open();
    driven.cut();
    driven.wait();
    driven.refused(code);
    assert.deepEqual([driven.states.at(-1), driven.machine.why, driven.machine.due], ["lost", "what came", null]);
  }
});

test("a server that asks for patience is asked again no sooner", () => {
  const driven = new Driven();
  driven.refused(503, "full", 10_000);
  assert.equal(driven.machine.due, 10_000);
});

test("waits grow, and are short again after a connection that was good for a while", () => {
  const waits = [];
  const driven = new Driven().open();
  for (let round = 0; round < 12; round++) {
    driven.cut();
    waits.push(driven.machine.due - driven.now);
    driven.wait();
  }
  assert.ok(waits[0] < 300 && waits.at(-1) > 3_000 && Math.max(...waits) <= 10_000, String(waits));
  driven.open({ state: "recovered" });
  driven.now += GOOD_MS;
  driven.cut();
  assert.ok(driven.machine.due - driven.now < 300);
});

test("when the network is back, nothing waits any longer", () => {
  const driven = new Driven().open();
  for (let round = 0; round < 9; round++) {
    driven.cut();
    driven.wait();
  }
  driven.cut();
  driven.do((machine) => machine.hurry(driven.now));
  assert.equal(driven.connects.length, 11);
  assert.equal(driven.machine.due, driven.now + ANSWER_MS);
});

test("after the end nothing happens", () => {
  const driven = new Driven().open();
  driven.do((machine) => machine.stop());
  driven.cut();
  driven.open();
  driven.do((machine) => machine.hurry(driven.now));
  assert.deepEqual([driven.states, driven.machine.due, driven.connects.length], [["live", "closed"], null, 1]);
});
