// Events in a page, without a build step:
//
//   import { stream } from "/reknit.js";
//   const chat = stream("/sse?topic=what/chat", { onevent: e => …, onstate: (state, why) => … });
//
// States: "opening", "waiting" (not opened yet: `why` says what came), "live", "recovering" (cut off, trying to
// resume), "recovered", "lost" (it can't resume: events may be missing, and no more come unless `afterLost` is "live"),
// "closed".
//
// machine.js decides what becomes of a stream; stream.js has one with a connection of its own, shared.js one of those
// that share a connection with all tabs, and hub.js is where they share it. Open machine.js first.

import { canShare, SharedStream } from "./shared.js";
import { Stream } from "./stream.js";

export { Seen } from "./seen.js";

/** Opens a stream that resumes where it left off. The options are described in index.d.ts. */
export function stream(url, options = {}) {
  const address = new URL(url, globalThis.location?.href);
  const One = canShare(address, options) ? SharedStream : Stream;
  return new One(address, options).open();
}
