import type { Body, LiveOptions, Sow } from "./sow.js";

/** What a component shows of a live view. */
export interface Shown<R = Body> {
  readonly rows: readonly R[];
  /** The keys of the rows, for `key` of their elements. */
  readonly order: readonly string[];
  /** Why it is not current; the rows are then those of before. */
  readonly error: Error | null;
  /** Whether the rows are those of the topic and options of now. */
  readonly ready: boolean;
}

/** The records of a topic as they are now; `sow` is null until `connect` has resolved. */
export function useLive<R = Body>(sow: Sow | null, topic: string, options?: LiveOptions): Shown<R>;
