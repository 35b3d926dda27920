// One stream's state: pure, so that a test can feed it. Time and randomness come in, effects go out.
//
//   closed     -- start --> opening, or recovering with a checkpoint
//   opening    -- opened --> live;      tick --> waiting;   cut, refused --> waiting, or lost
//   waiting    -- opened --> live;      cut, refused --> waiting, or lost
//   recovering -- opened --> recovered, or lost;            cut, refused --> recovering, or lost
//   live, recovered -- cut, or nothing heard during two heartbeats --> recovering
//   any        -- stop --> closed
//
// The Python client's machine is the same: protocol/tunnel/client.py.

export const BACKOFF_MS = [200, 10_000];
/** A connection that lasted this long was a good one: the next wait is short again. */
export const GOOD_MS = 10_000;
/** Whoever waits this long for a first answer is told. */
export const PATIENCE_MS = 4_000;
/** How long an answer may take. */
export const ANSWER_MS = 30_000;
/** How long nothing may come where the server does not say how often it sends a heartbeat. */
export const QUIET_UNTOLD_MS = 45_000;
export const QUIET_MS_MIN = 2_000;
const RETRY_AFTER_MS_MAX = 60_000;
/** Statuses below 500 that ask for another attempt. 426: a proxy passes no WebSocket on, which may change. */
const RETRIED = new Set([408, 425, 426, 429]);
export const NO_ANSWER =
  "no answer yet: the server is slow or frozen, or this browser has six connections to it, which is its limit over HTTP/1.1";

export class StreamMachine {
  constructor({ checkpoint = "", afterLost = "stop", quietMs = 0, random = Math.random } = {}) {
    this.state = "closed";
    this.checkpoint = checkpoint;
    this.why = "";
    this.due = null;
    this.effects = [];
    this.afterLost = afterLost;
    this.quietGiven = quietMs;
    this.quietMs = quietMs || QUIET_UNTOLD_MS;
    this.random = random;
    this.attempts = 0;
    this.isConnected = false; // a connection is open, or being opened
    this.answerBy = 0;
    this.openedAt = 0;
  }

  takeEffects() {
    return this.effects.splice(0);
  }

  start(now) {
    this.state = this.checkpoint ? "recovering" : "opening"; // no change that anybody has to be told of
    this.#connect(now);
  }

  stop() {
    this.due = null;
    if (this.isConnected) this.effects.push({ type: "disconnect" });
    this.isConnected = false;
    this.#become("closed");
  }

  /** The first event on a connection: it says whether the stream was resumed. */
  opened(answer, now) {
    if (!this.isConnected) return;
    const isResuming = this.state === "recovering";
    this.openedAt = now;
    this.quietMs = this.quietGiven || quietMs(answer.heartbeat_s);
    this.heard(now);
    if (answer.state === "lost" || (answer.state === "live" && isResuming)) {
      const why = answer.why ?? "the server could not resume";
      if (this.afterLost !== "live") return this.#lose(why);
      this.#become("lost", why);
      this.#become("live");
    } else this.#become(answer.state);
    this.why = "";
    if (answer.checkpoint) this.checkpoint = answer.checkpoint;
  }

  /** Something came, perhaps only a heartbeat. */
  heard(now, checkpoint = "") {
    if (!this.isConnected) return;
    this.due = now + this.quietMs;
    if (checkpoint) this.checkpoint = checkpoint;
  }

  /** The connection was lost, or could not be opened. */
  cut(why, now, waitMsMin = 0) {
    if (!this.isConnected) return;
    this.isConnected = false;
    this.why = why;
    const wasOpen = this.state === "live" || this.state === "recovered";
    if (wasOpen && now - this.openedAt >= GOOD_MS) this.attempts = 0;
    this.#become(wasOpen || this.state === "recovering" ? "recovering" : "waiting", why);
    const [low, high] = BACKOFF_MS;
    const most = Math.min(high, low * 2 ** Math.min(this.attempts, 30));
    const waitMs = low / 2 + this.random() * (most - low / 2);
    this.due = now + Math.max(waitMs, Math.min(waitMsMin, RETRY_AFTER_MS_MAX));
    this.attempts += 1;
  }

  /** Something other than a stream answered: an error, unless another attempt may find the server itself. */
  refused(code, why, now, retryAfterMs = 0) {
    if (!this.isConnected) return;
    if (code >= 500 || RETRIED.has(code)) this.cut(why, now, retryAfterMs);
    else this.#lose(why);
  }

  /** The network is back: do not wait any longer. */
  hurry(now) {
    if (this.due === null || this.isConnected) return;
    this.due = now;
    this.tick(now);
  }

  tick(now) {
    if (this.due === null || now < this.due) return;
    if (!this.isConnected) this.#connect(now);
    else if (this.state === "opening" && now < this.answerBy) {
      this.due = this.answerBy;
      this.why = NO_ANSWER;
      this.#become("waiting", NO_ANSWER);
    } else {
      const isOpen = this.state === "live" || this.state === "recovered";
      this.effects.push({ type: "disconnect" });
      this.cut(isOpen ? `the server sent nothing for ${this.quietMs / 1000} s` : NO_ANSWER, now);
    }
  }

  #connect(now) {
    this.isConnected = true;
    this.answerBy = now + ANSWER_MS;
    this.due = this.state === "opening" ? now + PATIENCE_MS : this.answerBy;
    this.effects.push({ type: "connect", checkpoint: this.checkpoint });
  }

  #lose(why) {
    this.due = null;
    this.why = why;
    if (this.isConnected) this.effects.push({ type: "disconnect" });
    this.isConnected = false;
    this.#become("lost", why);
  }

  #become(state, why = "") {
    if (state === this.state) return;
    this.state = state;
    this.effects.push({ type: "state", state, why });
  }
}

function quietMs(heartbeatS) {
  return heartbeatS > 0 ? Math.min(Math.max(2_000 * heartbeatS, QUIET_MS_MIN), 3_600_000) : QUIET_UNTOLD_MS;
}
