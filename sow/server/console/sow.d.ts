// Types of sow.js (docs/javascript.md).

/** An error that the server reports, or of the connection to it. */
export class SowError extends Error {
  /** A stable identifier: "bad filter", "invalid topic", "unreachable", "disconnected". */
  readonly reason: string;
  /** The position in the expression, a character from 0. */
  readonly position?: number;
  /** What was expected there. */
  readonly expected?: string;
  /** The index of the message in a publish, from 0. */
  readonly index?: number;
  /** The bad field of it. */
  readonly field?: string;
  /** The address of the server that takes what a follower refuses. */
  readonly primary?: string;
}

/** Log on to a server. */
export function connect(options?: ConnectOptions): Promise<Sow>;

/** `JSON.parse`, with integers above 2^53 as BigInt: for answers over HTTP. */
export function parseExact(text: string): Json;

export interface ConnectOptions {
  /** The server's address, by default the one that sow.js was loaded from; or several servers of one log, as a list or
   * text with commas. */
  url?: List;
  token?: string | (() => string | Promise<string>);
  user?: string;
  password?: string;
  /** The user to act as. */
  as?: string;
  /** The name of the client in the server's lists. */
  name?: string;
  /** Return integers above 2^53 as BigInt, with all digits, instead of the nearest number. */
  exact?: boolean;
  /** For runtimes without one, such as Node before 22. */
  WebSocket?: new (url: string) => unknown;
  retry?: { first_s?: number; longest_s?: number; give_up_s?: number };
  /** A timer: calls `work` after so many seconds, and returns a function that stops it. */
  after?: (seconds: number, work: () => void) => () => void;
  /** A number from 0 to 1. */
  random?: () => number;
}

export type State = "connecting" | "connected" | "reconnecting" | "paused" | "closed";
export type Json = null | boolean | number | bigint | string | Json[] | { [field: string]: Json };
/** A document, or text or bytes for other message types. */
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

export interface QueryOptions extends Question {
  /** The state at a bookmark or a time. */
  as_of?: string | null;
}

export interface Pacing {
  /** Only the changed fields of a record instead of all. */
  delta?: boolean;
  no_empties?: boolean;
  timestamp?: boolean;
  /** At most one update of a record per interval: "1s", "100ms", "auto". */
  conflation?: string | null;
  conflation_key?: List | null;
}

export interface LiveOptions extends Question, Pacing {
  /** Begin with the records of a bookmark or a time, then what has changed since. */
  as_of?: string | null;
  /** Of a series: begin with so many events of each record. */
  last?: number | null;
}

export interface SubscribeOptions extends Question, Pacing {
  /** The current records first. */
  snapshot?: boolean;
  /** With `snapshot`: those of a bookmark or a time, then what has changed since. */
  as_of?: string | null;
  /** Of a series, with `snapshot`: so many events of each record. */
  last?: number | null;
  oof?: boolean;
  no_sowkey?: boolean;
  live?: boolean;
  positions?: boolean;
  /** A number alone means the log of the current server. */
  bookmark?: string | number | null;
}

export interface Message<R = Body> {
  readonly command:
    | "group_begin" | "sow" | "group_end" | "p" | "oof" | "turn_end" | "completed" | "gap" | "unsubscribed";
  readonly topic?: string;
  readonly key?: string;
  readonly record?: R;
  /** Only the number: the subscription's bookmark has the name of the log. */
  readonly bookmark?: string;
  /** `record` is to be merged into the current record. */
  readonly delta?: boolean;
  readonly reason?: string;
  readonly detail?: string;
  /** The position in a live window, from 0. */
  readonly at?: number;
  readonly ts?: string;
  /** It replaces the event `seq` of a series, which is not the newest of its record if `past`. */
  readonly edit?: boolean;
  readonly seq?: number;
  readonly past?: boolean;
  /** For a gap: whether the following messages make up for it. */
  readonly exact?: boolean;
}

export interface Change<R = Body> {
  readonly key: string;
  /** Undefined: the record is new. */
  readonly old?: R;
  /** Undefined: it has left. */
  readonly new?: R;
  /** Why it has left: "match", "deleted", "expired", "entitlement"; "gap" after a reconnect. */
  readonly reason?: string;
  readonly at?: number;
}

/** The records of a query, in order. */
export type Answer<R = Body> = R[] & {
  /** The number of matches before `top_n` and `skip_n`. */
  readonly matches: number;
  /** Their SowKeys. */
  readonly order: readonly string[];
  readonly bookmark: string;
  /** Sentences on fields that no record has. */
  readonly advice: readonly string[];
};

export interface Subscription<R = Body> extends AsyncIterable<Message<R>> {
  readonly topic: string;
  readonly options: SubscribeOptions;
  /** The server's name of it. */
  readonly name: string;
  /** The bookmark of the newest update received, with the name of its log; a later subscription can resume from it. */
  readonly bookmark: string;
  /** How often it had to start again. */
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
  /** Called with all changes of one frame or turn. */
  onchange: ((changes: Change<R>[]) => void) | null;
  /** Called once at the end. */
  onend: ((end: { error: Error | null; reason: string; detail: string }) => void) | null;
  changes(): AsyncIterableIterator<Change<R>>;
  replace(changes: LiveOptions): Promise<void>;
  close(): void;
}

/** Publishes as one name; each message is stored exactly once. What waits is in memory. */
export interface IdempotentPublisher {
  readonly name: string;
  /** How many messages the server has not acknowledged. */
  readonly waiting: number;
  /** Resolves once the messages wait; rejects with what speaks against an earlier one. */
  publish(
    topic: string,
    records: unknown,
    options?: { delta?: boolean; key?: string; expires_s?: number },
  ): Promise<void>;
  delete(topic: string, options: { filter?: string; keys?: List }): Promise<void>;
  /** Resolves when the server has everything. */
  drain(): Promise<void>;
  /** Goes on after an error of the name; after "sequence lost" what waits is numbered again. */
  restart(): void;
  close(): void;
}

/** An event of a record of a series. */
export interface SeriesEvent<R = Body> {
  readonly seq: number;
  readonly ts: string;
  readonly author: string;
  readonly d: R;
}

export interface EventOptions {
  /** The number or the time of the first event. */
  from?: number | string | null;
  /** That of the last one. */
  to?: number | string | null;
  /** The newest so many of them; 1,000 by default. */
  limit?: number | null;
}

export interface Sow {
  onstate: ((now: { state: State; reason: string }) => void) | null;
  readonly state: State;
  readonly conflated: number;
  readonly dropped: number;
  query<R = Body>(topic: string, options?: QueryOptions): Promise<Answer<R>>;
  /** The events of one record of a series, the oldest first. */
  events<R = Body>(topic: string, key: string, options?: EventOptions): Promise<SeriesEvent<R>[]>;
  subscribe<R = Body>(topic: string, options?: SubscribeOptions): Promise<Subscription<R>>;
  live<R = Body>(topic: string, options?: LiveOptions): Promise<Live<R>>;
  publish(
    topic: string,
    records: unknown,
    options?: { delta?: boolean; key?: string; expires_s?: number },
  ): Promise<string>;
  delete(topic: string, options: { filter?: string; keys?: List }): Promise<number>;
  idempotentPublisher(name: string): IdempotentPublisher;
  pause(): void;
  resume(): void;
  close(): void;
}
