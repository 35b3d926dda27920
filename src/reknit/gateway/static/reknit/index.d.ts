/** What became of a stream. `lost`: it can't resume, and events may be missing. */
export type State = "opening" | "waiting" | "live" | "recovering" | "recovered" | "lost" | "closed";

export interface StreamEvent {
  topic: string;
  /** With `seq`, the identity of the event. */
  source: string;
  seq: number;
  time_us: number;
  headers?: Record<string, string>;
  /** The payload, if it is text. In batches it is decoded when it is asked for. */
  payload?: string;
  /** The payload, if it is not text. Not in batches. */
  payload_base64?: string;
  /** The payload as it was published. Only in batches. */
  bytes?: Uint8Array;
}

export interface StreamOptions {
  /** Called for each event, once; `checkpoint` is the place after it. */
  onevent?(event: StreamEvent, checkpoint: string): void;
  /** Called for the events of a batch at once, in place of `onevent`. Uses a WebSocket. */
  onbatch?(events: StreamEvent[], checkpoint: string): void;
  /** Called once for each change, with the reason. */
  onstate?(state: State, why: string): void;
  /** How to reach the node. Default: "websocket" with `onbatch`, "fetch" with a token, else "eventsource". */
  via?: "eventsource" | "fetch" | "websocket";
  /** A token, sent in a header: needs "fetch". */
  token?: string;
  /** Gets a ticket for each connection (POST /ticket): for "eventsource" and "websocket". */
  ticket?(): Promise<string> | string;
  /** Resume after this checkpoint of an earlier page. */
  checkpoint?: string;
  /** After "lost": stop (the default), or continue with new events. */
  afterLost?: "stop" | "live";
  /** How long nothing may come. Default: two of the server's heartbeats. */
  quietMs?: number;
  /** Bytes of batches that may be on their way to the page; what is beyond waits on the node. */
  creditBytes?: number;
}

export interface Stream {
  readonly state: State;
  /** Why it is not live: what came last. */
  readonly why: string;
  /** The place after the last event. */
  readonly checkpoint: string;
  /** How many events came again and were dropped. */
  readonly repeats: number;
  close(): void;
}

/** Opens a stream that resumes where it left off. */
export function stream(url: string | URL, options?: StreamOptions): Stream;

/** Remembers keys for a while, to recognize repeats. */
export class Seen {
  constructor(graceMs?: number, max?: number);
  add(key: string, now?: number): boolean;
}
