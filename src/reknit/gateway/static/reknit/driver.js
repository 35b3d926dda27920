import { StreamMachine } from "./machine.js";

/** Runs a machine: keeps its timer, and performs its effects. `on` has connect, disconnect, state and why. */
export class Driver {
  #on;
  #timer = null;
  #why = "";

  constructor(options, on) {
    this.machine = new StreamMachine(options);
    this.#on = on;
  }
  step(change) {
    change(this.machine, Date.now());
    for (const effect of this.machine.takeEffects()) {
      if (effect.type === "connect") this.#on.connect(effect.checkpoint);
      else if (effect.type === "disconnect") this.#on.disconnect();
      else this.#on.state(effect.state, (this.#why = effect.why));
    }
    clearTimeout(this.#timer);
    const { due, why } = this.machine;
    if (why !== this.#why) this.#on.why?.((this.#why = why));
    if (due !== null) this.#timer = setTimeout(() => this.step((machine, now) => machine.tick(now)), Math.max(0, due - Date.now()));
  }
  start() {
    this.step((machine, now) => machine.start(now));
  }
  stop() {
    this.step((machine) => machine.stop());
  }
  /** The network may be back, or a page is seen again: look what is due. */
  wake() {
    this.step((machine, now) => machine.tick(now));
    this.step((machine, now) => machine.hurry(now));
  }

  /** What a connection calls, as long as it is the current one. `events(batch or rows, checkpoint)` delivers. */
  inputs(isCurrent, events) {
    const when = (change) => (...args) => isCurrent() && this.step((machine, now) => change(machine, now, ...args));
    const heard = (machine, now, checkpoint) => machine.heard(now, checkpoint);
    return {
      opened: when((machine, now, answer) => machine.opened(answer, now)),
      heard: when(heard),
      events: when((machine, now, found, checkpoint) => {
        heard(machine, now, checkpoint);
        events(found, checkpoint);
      }),
      cut: when((machine, now, why) => machine.cut(why, now)),
      refused: when((machine, now, code, why, retryAfterMs) => machine.refused(code, why, now, retryAfterMs)),
    };
  }
}

/** An error of the application is reported, and does not stop the stream. */
export function call(listener, ...args) {
  try {
    listener?.(...args);
  } catch (error) {
    (globalThis.reportError ?? console.error)(error);
  }
}
