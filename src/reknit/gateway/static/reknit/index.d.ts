/** What became of a stream. `lost`: it can't resume, and events may be missing. */
export type State = "opening" | "waiting" | "live" | "recovering" | "recovered" | "lost" | "closed";

export interface StreamEvent {
  readonly topic: string;
  /** With `seq`, the identity of the event. */
  readonly source: string;
  readonly seq: number;
  readonly time_us: number;
  readonly headers?: Record<string, string> | null;
  /** The payload, if it is text. */
  readonly payload?: string;
  /** The payload, if it is not text. */
  readonly payload_base64?: string;
  /** The payload as it was published. */
  readonly bytes: Uint8Array;
}

export interface StreamOptions {
  /** Called for each event, once; `checkpoint` is the place after it, or after its batch. */
  onevent?(event: StreamEvent, checkpoint: string): void;
  /** Called for the events of a batch at once, in place of `onevent`. */
  onbatch?(events: StreamEvent[], checkpoint: string): void;
  /** Called once for each change, with the reason. */
  onstate?(state: State, why: string): void;
  /**
   * How to reach the node. "shared" (the default where a browser can): one WebSocket for all tabs and streams of a site, in
   * a SharedWorker ("sharedworker") or in one of the tabs ("broadcast"). The others open a connection for this stream.
   */
  via?: "shared" | "sharedworker" | "broadcast" | "eventsource" | "fetch" | "websocket";
  /** A token. It is sent in a header; a WebSocket gets a ticket for it. */
  token?: string;
  /** Gets a ticket for each connection (POST /ticket): for "eventsource" and "websocket". Such a stream is not shared. */
  ticket?(): Promise<string> | string;
  /** Resume after this checkpoint of an earlier page. */
  checkpoint?: string;
  /** After "lost": stop (the default), or continue with new events. */
  afterLost?: "stop" | "live";
  /** How long nothing may come. Default: two of the server's heartbeats. */
  quietMs?: number;
  /** Bytes that may be on their way to the page; what is beyond waits on the node. Default: 1 MiB. */
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

/** Remembers which events came, to recognize repeats. */
export class Seen {
  /** Remembers the events [first, first + count) of a source. Returns the ranges of them that are new. */
  add(source: string, first: number, count?: number): [number, number][];
}
