// Types of sow.js (docs/javascript.md).

/** What a server refuses, or what stands between it and the client. */
export class SowError extends Error {
  /** A word or two that stays the same: "bad filter", "invalid topic", "unreachable", "disconnected". */
  readonly reason: string;
  /** Where in the expression, a character from 0. */
  readonly position?: number;
  /** What would have been understood there. */
  readonly expected?: string;
  /** Which message of a publish, from 0. */
  readonly index?: number;
  /** Which field of it. */
  readonly field?: string;
}

/** Log on to a server. */
export function connect(options?: ConnectOptions): Promise<Sow>;

/** `JSON.parse`, save that an integer above 2^53 is a BigInt: for what comes over HTTP. */
export function parseExact(text: string): Json;

export interface ConnectOptions {
  /** The server's address; without it, that of where sow.js was loaded from. */
  url?: string;
  token?: string | (() => string | Promise<string>);
  user?: string;
  password?: string;
  /** The user for whom this one acts. */
  as?: string;
  /** What the server lists the client under. */
  name?: string;
  /** Whether an integer above 2^53 comes as a BigInt, with all its digits, instead of as the nearest number. */
  exact?: boolean;
  /** For runtimes that have none of their own, such as Node before 22. */
  WebSocket?: new (url: string) => unknown;
  retry?: { first_s?: number; longest_s?: number; give_up_s?: number };
  /** A timer: calls `work` after so many seconds, and returns what stops it. */
  after?: (seconds: number, work: () => void) => () => void;
  /** A number from 0 to 1. */
  random?: () => number;
}

export type State = "connecting" | "connected" | "reconnecting" | "paused" | "closed";
export type Json = null | boolean | number | bigint | string | Json[] | { [field: string]: Json };
/** A document; a text or bytes of message types that are none. */
export type Body = Json | Uint8Array;
/** A list, or text with commas. */
export type List = string | readonly string[];

export interface Question {
  filter?: string | null;
  keys?: List | null;
  order_by?: string | null;
  top_n?: number | null;
  skip_n?: number | null;
  select?: List | null;
  projection?: List | null;
  grouping?: List | null;
}

export interface Pacing {
  /** Only what has changed of a record instead of all of it. */
  delta?: boolean;
  no_empties?: boolean;
  timestamp?: boolean;
  /** At most one update of a record in so long: "1s", "100ms", "auto". */
  conflation?: string | null;
  conflation_key?: List | null;
}

export interface LiveOptions extends Question, Pacing {
}

export interface SubscribeOptions extends Question, Pacing {
  /** The records as they stand first. */
  snapshot?: boolean;
  oof?: boolean;
  no_sowkey?: boolean;
  live?: boolean;
  positions?: boolean;
  /** A number alone means the log of the server that is there now. */
  bookmark?: string | number | null;
}

export interface Message<R = Body> {
  readonly command:
    | "group_begin" | "sow" | "group_end" | "p" | "oof" | "turn_end" | "completed" | "gap" | "unsubscribed";
  readonly topic?: string;
  readonly key?: string;
  readonly record?: R;
  /** A number alone: the subscription's names the log. */
  readonly bookmark?: string;
  /** `record` is to be merged into what there is. */
  readonly delta?: boolean;
  readonly reason?: string;
  readonly detail?: string;
  /** The place in a live window, from 0. */
  readonly at?: number;
  readonly ts?: string;
  /** Of a gap: whether what follows makes up for it. */
  readonly exact?: boolean;
}

export interface Change<R = Body> {
  readonly key: string;
  /** Undefined: the record is new. */
  readonly old?: R;
  /** Undefined: it has left. */
  readonly new?: R;
  /** Why it has left: "match", "deleted", "expired", "entitlement"; "gap" after a new beginning. */
  readonly reason?: string;
  readonly at?: number;
}

/** The records of a query, in order. */
export type Answer<R = Body> = R[] & {
  /** How many there are before `top_n` and `skip_n`. */
  readonly matches: number;
  /** Their SowKeys. */
  readonly order: readonly string[];
  readonly bookmark: string;
};

export interface Subscription<R = Body> extends AsyncIterable<Message<R>> {
  readonly topic: string;
  readonly options: SubscribeOptions;
  /** What the server calls it. */
  readonly name: string;
  /** That of the newest update that has arrived, with the name of its log: where to go on, also later. */
  readonly bookmark: string;
  /** How often it had to begin anew. */
  readonly gaps: number;
  next(): Promise<IteratorResult<Message<R>, undefined>>;
  replace(changes: SubscribeOptions): Promise<void>;
  close(): void;
}

export interface Live<R = Body> extends ReadonlyMap<string, R> {
  readonly topic: string;
  readonly options: LiveOptions;
  /** The keys: of a window in its order. */
  readonly order: string[];
  /** The records in that order; another array whenever they have changed. */
  readonly rows: readonly R[];
  readonly gaps: number;
  /** Called with all that one frame or turn has changed. */
  onchange: ((changes: Change<R>[]) => void) | null;
  /** Called once when nothing more will come. */
  onend: ((end: { error: Error | null; reason: string; detail: string }) => void) | null;
  changes(): AsyncIterableIterator<Change<R>>;
  replace(changes: LiveOptions): Promise<void>;
  close(): void;
}

export interface Sow {
  onstate: ((now: { state: State; reason: string }) => void) | null;
  readonly state: State;
  readonly conflated: number;
  readonly dropped: number;
  query<R = Body>(topic: string, options?: Question): Promise<Answer<R>>;
  subscribe<R = Body>(topic: string, options?: SubscribeOptions): Promise<Subscription<R>>;
  live<R = Body>(topic: string, options?: LiveOptions): Promise<Live<R>>;
  publish(
    topic: string,
    records: unknown,
    options?: { delta?: boolean; key?: string; expires_s?: number },
  ): Promise<string>;
  delete(topic: string, options: { filter?: string; keys?: List }): Promise<number>;
  pause(): void;
  resume(): void;
  close(): void;
}
