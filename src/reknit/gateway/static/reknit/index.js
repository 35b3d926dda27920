// Events in a page, without a build step:
//
//   import { stream } from "/reknit.js";
//   const chat = stream("/sse?topic=what/chat", { onevent: e => …, onstate: (state, why) => … });
//
// States: "opening", "waiting" (not opened yet: `why` says what came), "live", "recovering" (cut off, trying to
// resume), "recovered", "lost" (it can't resume: events may be missing, and no more come unless `afterLost` is "live"),
// "closed". Open machine.js first.

import { Stream } from "./stream.js";

export { Seen } from "./seen.js";
export { StreamMachine } from "./machine.js";

/** Opens a stream that resumes where it left off. The options are described in index.d.ts. */
export function stream(url, options = {}) {
  return new Stream(url, options).open();
}
