/* SOW in JavaScript: one file, no build, no dependencies (docs/javascript.md; types: sow.d.ts).
 *
 * For pages, and for Node 18 or newer; before 22 Node has no WebSocket: pass one as `WebSocket`. A
 * client is one WebSocket, used for queries, publishes, deletes and subscriptions; events of a series
 * are read over HTTP. A broken connection is reopened. Both sides count lines, so the server continues with the next one; if it does not have
 * the session any more, subscriptions start again, after a message "gap".
 *
 * Nothing that is received is executed or inserted into a page. The credentials of a logon are kept in
 * memory only, for reconnecting, until `close` or the end: user and password, the token, or the
 * function that returns tokens.
 */

const FRAME_MESSAGES = 1000; // of one publish, stored atomically; as many as the Python client sends
const HEARTBEAT_S = 20; // the server drops silent clients after a minute
const NOW = ["", "now", "0|1|"]; // bookmarks of the present
const LOGON_S = 10; // the timeout of a logon
const UNREAD_MAX = 100_000; // unread messages of one subscription: some ten megabytes
const BASE64_BYTES = 8192; // as many arguments as every engine takes in one call
const GIVEN_UP = 1008; // WebSocket close codes: the server has ended the session,
const BARRED = 4401; // and this because the credentials are not valid any more

const AWAY = ["upstream lost", "replaying", "not yet", "stale"]; // of a server that another one may stand for
const ELSEWHERE = ["upstream lost", "not primary", "no quorum", "outcome unknown", "disk full", "store error", "store failing"]; // of a server that ends a session since it cannot go on itself, where another one may
const PASSING = ["invalid seen", "too many logons", "busy", "replaying", "memory full", ...ELSEWHERE]; // of a logon; that of a publisher with numbers is stored
const FINAL = new WeakSet(); // errors after which the client does not reconnect

/** An error that the server reports, or of the connection to it. */
export class SowError extends Error {
  /** `more` may have `position` and `expected` (in an expression), `index` and `field` (of a message),
   * `held` and `highest` (numbers of a publisher), `primary` (the address for what a follower refuses). */
  constructor(reason, detail, more = {}) {
    super(detail);
    this.name = "SowError";
    this.reason = reason;
    for (const name of ["position", "expected", "index", "field", "held", "highest", "primary"]) {
      if (more[name] !== undefined && more[name] !== null) this[name] = more[name];
    }
  }
}

/** Log on to a server; resolves to the client, throws a SowError if it fails. */
export async function connect(options = {}) {
  const connection = new Connection(checked(options, CONNECT_OPTIONS, "connect"));
  const sow = new Sow(connection);
  connection.onstate = (state) => sow.onstate?.(state);
  await connection.begin();
  return sow;
}

// Names of options.

const CONNECT_OPTIONS = [
  "url", "token", "user", "password", "as", "name", "exact", "WebSocket", "retry", "after", "random",
];
const QUERY_FIELDS = ["filter", "keys", "order_by", "top_n", "skip_n", "select", "projection", "grouping"];
const QUERY_OPTIONS = [...QUERY_FIELDS, "as_of"];
const FLAGS = ["oof", "no_empties", "timestamp", "no_sowkey", "live", "positions"];
const SUBSCRIPTION_OPTIONS = [
  ...QUERY_FIELDS, ...FLAGS, "snapshot", "delta", "conflation", "conflation_key", "bookmark", "last", "as_of",
];
const LIVE_OPTIONS = [
  ...QUERY_FIELDS, "delta", "no_empties", "timestamp", "conflation", "conflation_key", "last", "as_of",
];

const EVENT_OPTIONS = Object.keys({ from: 0, to: 0, limit: 0 });

function checked(options, known, method) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new SowError("bad request", `${method} has no option ${name}; it takes ${known.join(", ")}`);
    }
  }
  return options;
}

/** Lists as the comma text of the protocol; members of `grouped` lists may contain commas. */
function listed(value, grouped = false) {
  if (!Array.isArray(value)) return value;
  return grouped ? `[${value.join(",")}]` : value.join(",");
}

function queryFields(options) {
  const fields = {};
  for (const name of QUERY_FIELDS) {
    if (options[name] === undefined || options[name] === null) continue;
    fields[name] = listed(options[name], name === "projection" || name === "grouping");
  }
  return fields;
}

/** The line of a subscription: `options` of `subscribe`, and further flags. */
function subscriptionLine(topic, options, more = []) {
  const opts = [...more, ...FLAGS.filter((flag) => options[flag])];
  if (options.conflation) opts.push(`conflation=${options.conflation}`);
  if (options.conflation_key) opts.push(`conflation_key=[${listed(options.conflation_key)}]`);
  if (options.last) opts.push(`last=${options.last}`);
  const line = {
    c: `${options.snapshot ? "sow_and_" : ""}${options.delta ? "delta_" : ""}subscribe`,
    t: topic,
    ...queryFields(options),
  };
  if (options.bookmark !== undefined && options.bookmark !== null) line.bm = String(options.bookmark);
  if (options.as_of !== undefined && options.as_of !== null) line.as_of = String(options.as_of);
  if (opts.length > 0) line.opts = opts.join(",");
  return line;
}

/** The bookmark to resume from when everything up to `seen` has arrived: a range keeps its end. */
function goingOn(bookmark, seen) {
  const range = rangeOf(bookmark);
  return range === null ? seen : `(${seen}:${range.end}${range.closing}`;
}

/** The parts of a range of bookmarks; null if the text is not a range. */
function rangeOf(bookmark) {
  const range = /^\s*([[(])(.*)([\])])\s*$/s.exec(bookmark);
  if (range === null) return null;
  const [, opening, inner, closing] = range;
  // A time may contain colons, so the last one is tried first.
  for (let at = inner.lastIndexOf(":"); at >= 0; at = at > 0 ? inner.lastIndexOf(":", at - 1) : -1) {
    const [start, end] = [inner.slice(0, at).trim(), inner.slice(at + 1).trim()];
    if (isPlace(start) && isPlace(end)) return { opening, start, end, closing };
  }
  return null;
}

/** A bookmark with the name of the log added to its numbers. 0 is the beginning of any log. */
function withLog(bookmark, log) {
  if (log === "") return bookmark;
  const named = (text) => (/^\s*0*[1-9]\d*\s*$/.test(text) ? `${log}-${text.trim()}` : text);
  const range = rangeOf(bookmark);
  if (range === null) return bookmark.split(",").map(named).join(",");
  return `${range.opening}${named(range.start)}:${named(range.end)}${range.closing}`;
}

function isPlace(text) {
  return /^(|now|0\|1\||([0-9a-f]{16}-)?\d+|\d{8}T\d{6}(\.\d{1,6})?Z?|\d{4}-\d{2}-\d{2}([T ][\d:.]+(Z|[+-][\d:]+)?)?)$/.test(text);
}

/** The WebSocket address of the server at `url`; by default of the server that serves this file. */
function address(url) {
  let base = url ?? new URL(".", import.meta.url).href;
  if (!base.includes("://") && !base.startsWith("/")) base = `http://${base}`;
  let found;
  try {
    found = new URL(base, globalThis.location?.href);
  } catch {
    throw new SowError("bad request", `${url} is not an address such as http://127.0.0.1:8080`);
  }
  if (found.username || found.password) {
    // It would appear in every error, and is not shown here.
    throw new SowError("bad request", "the address has a user in it; give user and password separately");
  }
  const scheme = { "http:": "ws:", "https:": "wss:", "ws:": "ws:", "wss:": "wss:" }[found.protocol];
  if (scheme === undefined) {
    throw new SowError("bad request", `${found.href} is not an address of http, https, ws or wss; give url`);
  }
  found.protocol = scheme;
  found.pathname = `${found.pathname.replace(/\/+$/, "")}/v1/ws`;
  found.search = found.hash = "";
  return found.href;
}

const LEADS_MAX = 3; // servers in a round that are not in the list
const NAMED_CHARS_MAX = 2000; // of an address that a server names
const LEFT_CHARS_MAX = 2 ** 20; // of records that have left, some 30,000 keys

/** The WebSocket address of a server that another one names, which may be anything. */
function named(primary) {
  const wrong = (why) => final("bad request", `a server for writes is named whose address ${why}`);
  const text = String(primary);
  if (text.length > NAMED_CHARS_MAX) throw wrong(`has ${text.length} characters`);
  if (!/^[a-z]+:\/\/[!-~]+$/i.test(text) || /[?#]/.test(text)) throw wrong("is none such as http://127.0.0.1:8080");
  try {
    return address(text);
  } catch (error) {
    throw final(error.reason, error.message);
  }
}

/** The addresses of the servers of one log, as a client uses them: it stays at the first that answers, and
 * tries each once, from that on, when it is lost. Writes have one server, the primary, which followers name:
 * the last one named stands before the list, and servers that name ever new ones end a round. */
class Addresses {
  #all;
  #given; // those of the user
  #current;
  log = ""; // the name of the log, once it is known

  constructor(given) {
    const urls = typeof given === "string" ? given.split(",").map((one) => one.trim()) : (given ?? [undefined]);
    if (urls.length === 0 || (urls.length > 1 && urls.includes(""))) {
      throw new SowError("bad request", `the list of addresses "${urls}" has an empty one; write a comma only between two`);
    }
    this.#all = urls.map(address);
    const [first] = this.#all;
    const other = this.#all.find((url) => new URL(url).protocol !== new URL(first).protocol);
    if (other !== undefined) {
      throw new SowError("bad request", `the addresses ${first} and ${other} have different schemes; write all with one`);
    }
    if (new Set(this.#all).size < urls.length) throw new SowError("bad request", "an address is in the list twice; write it once");
    this.#current = first;
    this.#given = this.#all;
  }

  get current() {
    return this.#current;
  }

  get areSeveral() {
    return this.#all.length > 1;
  }

  /** The same list, with another address in front: that of a primary. */
  after(primary) {
    const first = named(primary);
    if (new URL(first).protocol !== new URL(this.#current).protocol) {
      throw final("bad request", `${primary} is named as the server for writes, and has another scheme than ${this.#current}`);
    }
    const found = new Addresses([...new Set([first, ...this.#given])].map(ofSocket));
    found.log = this.log;
    found.#given = this.#given;
    return found;
  }

  /** The address to try after `tried`; undefined at the end of a round. */
  next(tried) {
    if (tried.size >= this.#given.length + LEADS_MAX) return undefined;
    const at = this.#all.indexOf(this.#current);
    return [...this.#all.slice(at), ...this.#all.slice(0, at)].find((url) => !tried.has(url));
  }

  use(url) {
    if (this.#all.includes(url)) this.#current = url;
  }

  /** Begin the next round with another address. */
  leave() {
    this.#current = this.next(new Set([this.#current])) ?? this.#current;
  }
}

/** The address of a server by that of its WebSocket. */
function ofSocket(url) {
  return url.replace(/\/v1\/ws$/, "");
}

// Encoding and decoding of messages.

const HALF = /\p{Surrogate}/u;

/** A document as JSON. A value that JSON does not have is an error with its path, and never becomes null;
 * undefined fields are left out, and a BigInt keeps its digits. */
function written(value, place, index) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw unwritable(place, index, `is ${value}, which JSON does not have; send null, or leave the field out`);
  }
  if (typeof value === "string" && HALF.test(value)) {
    throw unwritable(place, index, "has half of a surrogate pair, which is not a character");
  }
  if (typeof value === "bigint") return String(value);
  if (value === null || ["string", "number", "boolean"].includes(typeof value)) return JSON.stringify(value);
  if (typeof value !== "object") {
    throw unwritable(place, index, `is ${typeof value}, which JSON does not have`);
  }
  if (typeof value.toJSON === "function") return written(value.toJSON(), place, index);
  if (Array.isArray(value)) {
    return `[${Array.from(value, (one, at) => written(one, `${place}[${at}]`, index)).join(",")}]`;
  }
  if (value instanceof Map || value instanceof Set || ArrayBuffer.isView(value)) {
    throw unwritable(place, index, `is a ${value.constructor.name}, which JSON does not have`);
  }
  const fields = Object.entries(value).filter(([, one]) => one !== undefined);
  const parts = fields.map(([name, one]) => `${written(name, place, index)}:${written(one, `${place}/${name}`, index)}`);
  return `{${parts.join(",")}}`;
}

function unwritable(place, index, what) {
  const field = place || "/";
  return new SowError("bad message", `message ${index}: ${field} ${what}`, { index, field });
}

/** Messages as bodies of lines; with `enc` if they are bytes. */
function bodiesOf(records) {
  const messages = Array.isArray(records) ? records : [records];
  const bytes = messages.filter((one) => one instanceof Uint8Array || one instanceof ArrayBuffer).length;
  if (bytes > 0 && bytes < messages.length) {
    throw new SowError("bad message", "some messages are bytes and some are not; publish them separately");
  }
  return {
    enc: bytes > 0 ? "base64" : undefined,
    bodies: messages.map((one, index) => (bytes > 0 ? base64(one) : bodyOf(one, index))),
  };
}

function bodyOf(message, index) {
  if (typeof message !== "string") {
    try {
      return written(message, "", index);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw unwritable("", index, "is nested too deeply, or contains itself");
    }
  }
  if (HALF.test(message)) throw unwritable("", index, "has half of a surrogate pair, which is not a character");
  // Line breaks are whitespace in JSON; a text with line breaks is sent in a frame of its own.
  return /^\s*\{/.test(message) ? message.replace(/[\r\n]+/g, " ") : message;
}

function base64(bytes) {
  const all = new Uint8Array(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
  const parts = [];
  for (let at = 0; at < all.length; at += BASE64_BYTES) {
    parts.push(String.fromCharCode(...all.subarray(at, at + BASE64_BYTES)));
  }
  return btoa(parts.join(""));
}

function recordOf(line) {
  if (line.enc !== "base64") return line.d;
  return Uint8Array.from(atob(line.d), (one) => one.charCodeAt(0));
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `record` with a delta merged into it, path by path; neither is modified. */
function merged(record, delta) {
  const result = { ...record };
  for (const [name, value] of Object.entries(delta)) {
    const under = Object.hasOwn(result, name) && isObject(result[name]) ? result[name] : {};
    const now = isObject(value) ? merged(under, value) : value;
    // Defined, not assigned: "__proto__" is an ordinary field.
    Object.defineProperty(result, name, { value: now, writable: true, enumerable: true, configurable: true });
  }
  return result;
}

/** Whether two JSON values are equal, whatever the order of their fields. */
function same(one, other) {
  if (one === other) return true;
  const areHeld = [one, other].every((value) => typeof value === "object" && value !== null);
  if (!areHeld || Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  if (names.length !== Object.keys(other).length) return false;
  return names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

// A double represents each integer of less than 16 digits, and those of 16 that do not begin with a 9.
const MAY_BE_LARGE = /9\d{15}|\d{17}/;
const TOKEN = /\\.|"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?[1-9]\d*$/;
const NUL = "\\u0000";

/** `JSON.parse`, with integers that a double does not represent as BigInt. */
export function parseExact(text) {
  return MAY_BE_LARGE.test(text) ? JSON.parse(marked(text), unmarked) : JSON.parse(text);
}

/** Such an integer passes JSON.parse as a string that ends with a NUL; a string that ends with a NUL gets another. */
function marked(text) {
  let isInText = false;
  let escaped = -1; // where the last escape began
  return text.replace(TOKEN, (token, at) => {
    if (token === '"') {
      isInText = !isInText;
      const endsWithNul = !isInText && escaped === at - NUL.length && text.startsWith(NUL, escaped);
      return endsWithNul && !isBefore(":", text, at + 1) ? `${NUL}"` : token;
    }
    if (token[0] === "\\") escaped = at;
    else if (!isInText && INTEGER.test(token) && !Number.isSafeInteger(Number(token))) return `"${token}${NUL}"`;
    return token;
  });
}

function unmarked(_, value) {
  if (typeof value !== "string" || !value.endsWith("\0")) return value;
  return value.endsWith("\0\0") ? value.slice(0, -1) : BigInt(value.slice(0, -1));
}

/** Whether only whitespace is between `at` and `mark`. */
function isBefore(mark, text, at) {
  while (" \t\r\n".includes(text[at] ?? mark)) at += 1;
  return text[at] === mark;
}

const TEXT = new TextDecoder();

/** The lines of a frame, decoded by `parse`; throws if it is invalid. */
function linesOf(data, parse = JSON.parse) {
  const text = typeof data === "string" ? data : TEXT.decode(data);
  const lines = [];
  for (const line of text.split("\n")) if (line !== "") lines.push(parse(line));
  if (!lines.every(isObject)) throw new TypeError("a line is an object");
  return lines;
}

// The connection.

function afterSeconds(seconds, work) {
  const timer = setTimeout(work, seconds * 1000);
  return () => clearTimeout(timer);
}

/** One session, over successive sockets. */
class Connection {
  state = "connecting";
  onstate = null;
  onlogon = null; // called with the ack of each logon
  conflated = 0;
  dropped = 0;
  #addresses;
  #options;
  #name;
  #parse;
  #retry;
  #after;
  #random;
  #socket = null;
  #attempt = 0; // the current attempt to connect; continuations of earlier ones stop
  #session = null;
  #seen = 0;
  #cids = 0;
  #received = true;
  #farewell = "";
  #stopWatch = () => {};
  #stopTrust = () => {};
  #patience_s; // the first wait when the connection breaks
  #pending = new Map(); // cid -> request
  #overtaken = new Set(); // cids of requests that were sent again, in case the first is answered too
  #sinks = new Map(); // the server's name of an answer or subscription -> its receiver
  #followed = new Set(); // subscriptions
  #touched = new Set(); // subscriptions with lines in the current frame

  constructor(options, addresses = new Addresses(options.url)) {
    this.#addresses = addresses;
    this.#options = options;
    this.#name = options.name ?? "sow.js";
    this.#parse = options.exact ? parseExact : JSON.parse;
    this.#retry = { first_s: 0.1, longest_s: 5, give_up_s: Infinity, ...options.retry };
    this.#patience_s = this.#retry.first_s;
    this.#after = options.after ?? afterSeconds;
    this.#random = options.random ?? Math.random;
  }

  get #url() {
    return this.#addresses.current;
  }

  /** The name of the server's log. */
  get log() {
    return this.#addresses.log;
  }

  /** Whether it can go on at another address. */
  get areSeveral() {
    return this.#addresses.areSeveral;
  }

  /** A connection of its own, which owns the name of a publisher. */
  beside(name) {
    return new Connection({ ...this.#options, name, sequence: true }, new Addresses(this.#options.url));
  }

  /** A connection for what a follower refuses, to the server that it names. */
  toPrimary(primary) {
    return new Connection(this.#options, this.#addresses.after(primary));
  }

  // States.

  async begin() {
    this.#attempt += 1;
    try {
      await this.#open(this.#attempt);
    } catch (error) {
      this.end(error);
      throw error;
    }
  }

  #setState(state, reason = "") {
    this.state = state;
    guarded(() => this.onstate?.({ state, reason }));
  }

  pause() {
    if (this.state === "closed" || this.state === "paused") return;
    this.#leave();
    this.#setState("paused");
  }

  resume() {
    if (this.state === "paused") this.#reconnect("", 0);
  }

  close() {
    if (this.#socket !== null && this.#followed.size > 0) {
      // So that the server does not keep the session for a reconnect.
      this.#socket.send(JSON.stringify({ c: "unsubscribe", s: "all" }));
    }
    this.end(null);
  }

  /** End the connection; `error` is the reason, null if the client closed it. */
  end(error) {
    if (this.state === "closed") return;
    this.#leave();
    this.#options = {}; // including the credentials
    this.#session = null;
    const why = error ?? new SowError("disconnected", "the client was closed");
    for (const request of [...this.#pending.values()]) this.#settle(request, () => request.reject(why));
    for (const followed of [...this.#followed]) followed.end(error);
    this.#followed.clear();
    this.#sinks.clear();
    this.#setState("closed", error === null ? "" : why.message);
  }

  /** Close the socket, and cancel an attempt to open another. */
  #leave() {
    this.#attempt += 1;
    this.#stopWatch();
    this.#stopTrust();
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  // Connecting.

  /** One attempt to open a socket and log on, at the first address that answers. */
  async #open(attempt) {
    const credentials = await credentialsOf(this.#options);
    const errors = [];
    const tried = new Set();
    for (let url = this.#url; url !== undefined; url = this.#addresses.next(tried)) {
      if (attempt !== this.#attempt) return;
      tried.add(url);
      try {
        await this.#openAt(url, credentials, attempt);
        this.#addresses.use(url);
        return;
      } catch (error) {
        if (FINAL.has(error) || attempt !== this.#attempt) throw error;
        errors.push(error);
        if (error.primary) this.#addresses = this.#addresses.after(error.primary);
      }
    }
    if (errors.length === 1) throw errors[0];
    const detail = errors.map(({ message }) => message).join("; ");
    throw new SowError("unreachable", `none of ${errors.length} addresses can be used: ${detail}`);
  }

  async #openAt(url, credentials, attempt) {
    const Socket = this.#options.WebSocket ?? globalThis.WebSocket;
    if (Socket === undefined) {
      throw new SowError(
        "bad request",
        "there is no WebSocket here; Node has one from 22 on, or with --experimental-websocket, or " +
          "pass one: connect({WebSocket})",
      );
    }
    await new Promise((resolve, reject) => {
      let socket;
      try {
        socket = new Socket(url);
      } catch (error) {
        throw new SowError("unreachable", `no connection to ${url}: ${error.message}`);
      }
      const stop = this.#after(LOGON_S, () => fail(this.#unreachable(url, "it did not answer in time")));
      const fail = (error) => {
        stop();
        silence(socket);
        socket.close();
        reject(error);
      };
      socket.binaryType = "arraybuffer";
      socket.onerror = () => {}; // a close event with the reason follows
      socket.onclose = ({ code, reason }) => fail(this.#broken(code, reason, url));
      socket.onopen = () => {
        if (attempt !== this.#attempt) return fail(new SowError("disconnected", "given up"));
        const session = this.#session === null ? {} : { session: this.#session, seen: this.#seen };
        const { sequence } = this.#options;
        return socket.send(line({ c: "logon", cid: "logon", client: this.#name, sequence, ...credentials, ...session }));
      };
      // Handlers are set within this event: the next frame may follow immediately.
      socket.onmessage = ({ data }) => {
        if (attempt !== this.#attempt) return fail(new SowError("disconnected", "given up"));
        let ack;
        try {
          // The ack is alone in its frame, so that both sides count lines from the same point.
          // What a chained server says of its upstream before it is not counted.
          ack = linesOf(data).find((one) => one.c !== "notice");
        } catch {
          return fail(new SowError("unreachable", `${url} does not speak SOW`));
        }
        if (ack === undefined) return undefined;
        if (ack?.c !== "ack" || ack.status !== "success") return fail(this.#refused(ack));
        const other = this.#otherLog(url, ack.log ?? "");
        if (other !== null) return fail(other);
        stop();
        this.#onLogon(socket, ack);
        return resolve();
      };
    });
  }

  /** The error of a server with another log than the others of a list; null if it has the same. */
  #otherLog(url, log) {
    const known = this.#addresses.log;
    if (this.areSeveral && known !== "" && log !== "" && log !== known) {
      return new SowError("another log", `${url} has the log ${log}, and the other addresses ${known}; list servers of one log only`);
    }
    this.#addresses.log = log;
    return null;
  }

  #onLogon(socket, ack) {
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#onFrame(socket, data);
    socket.onclose = ({ code, reason }) => this.#lose(socket, this.#broken(code, reason));
    this.#watch();
    // A server may accept a logon and drop the connection at once: the backoff is reset only after the
    // connection has lasted for the longest wait.
    this.#stopTrust = this.#after(this.#retry.longest_s, () => (this.#patience_s = this.#retry.first_s));
    if (ack.resumed === true) {
      this.#setState("connected");
      this.#findLost();
    } else {
      this.#session = ack.session;
      this.#seen = 0;
      this.#setState("connected", ack.reason ?? "");
      this.#startAgain(ack.reason ?? "");
    }
    this.onlogon?.(ack);
  }

  #refused(ack) {
    if (ack?.c === "close") return closedByServer(ack.reason);
    if (ack?.reason === "invalid seen") this.#session = null; // try again with a new session
    const error = failure(ack ?? {});
    return PASSING.includes(error.reason) ? error : asFinal(error);
  }

  #unreachable(url, what) {
    return new SowError(
      "unreachable",
      `no server answers at ${url}, or it does not accept this page: ${what}; start one with ` +
        "sow serve, give its address as url, or list the page's origin in <AllowedOrigins>",
    );
  }

  /** The error of a closed socket. */
  #broken(code, reason, opening = null) {
    if (code === BARRED) return barred();
    if (this.areSeveral && ELSEWHERE.includes(this.#farewell)) {
      this.#farewell = "";
      this.#addresses.leave();
      return new SowError("disconnected", "the server has lost the one behind it");
    }
    if (code === GIVEN_UP || this.#farewell !== "") return closedByServer(this.#farewell || reason);
    if (opening !== null) return this.#unreachable(opening, reason || `closed with ${code}`);
    return new SowError("disconnected", `the connection was lost: ${reason || `closed with ${code}`}`);
  }

  #lose(socket, error) {
    if (socket !== this.#socket) return;
    this.#leave();
    if (FINAL.has(error)) this.end(error);
    else this.#reconnect(error.message, this.#patience_s);
  }

  /** Go on at another address: this server does not answer as it should for now. */
  moveOn({ message }) {
    if (this.#socket === null) return;
    this.#session = null;
    this.#addresses.leave();
    this.#lose(this.#socket, new SowError("disconnected", message));
  }

  /** Do something in a while, unless another session has begun by then. */
  later(work) {
    const session = this.#session;
    this.#after(this.#retry.longest_s, () => {
      if (this.#session === session) work();
    });
  }

  /** Reconnect with exponential backoff. */
  async #reconnect(reason, wait_s) {
    const attempt = ++this.#attempt;
    this.#setState("reconnecting", reason);
    let waited_s = 0;
    for (;;) {
      // Half of a wait is random, so that many clients do not reconnect at one moment.
      const pause_s = wait_s * (1 - 0.5 * this.#random());
      if (pause_s > 0) await new Promise((done) => this.#after(pause_s, done));
      waited_s += pause_s;
      if (attempt !== this.#attempt) return;
      wait_s = this.#patience_s = wait_s === 0 ? this.#retry.first_s : Math.min(this.#retry.longest_s, wait_s * 2);
      try {
        await this.#open(attempt);
        return;
      } catch (error) {
        if (attempt !== this.#attempt) return;
        if (FINAL.has(error) || waited_s >= this.#retry.give_up_s) return this.end(error);
      }
    }
  }

  /** Send a heartbeat to a silent server, and disconnect if it does not answer. */
  #watch() {
    this.#stopWatch();
    let probed = false;
    this.#received = true;
    const look = () => {
      if (this.#received) probed = false;
      else if (probed) return this.#lose(this.#socket, new SowError("disconnected", "the server is silent"));
      else {
        probed = true;
        this.#socket.send('{"c":"heartbeat"}');
      }
      this.#received = false;
      this.#stopWatch = this.#after(HEARTBEAT_S, look);
    };
    this.#stopWatch = this.#after(HEARTBEAT_S, look);
  }

  // Requests.

  /** The answer to a GET over HTTP. */
  async get(path, parameters = {}) {
    if (this.state === "closed") throw new SowError("disconnected", "the client is closed; connect again");
    const { as, user, password, token } = await credentialsOf(this.#options);
    if (as !== undefined) throw new SowError("bad request", `this is read over HTTP, where nobody acts for ${as}; connect as that user`);
    const headers = { Accept: "application/json" };
    if (token !== undefined) headers.Authorization = `Bearer ${token}`;
    if (user !== undefined) headers.Authorization = `Basic ${base64(new TextEncoder().encode(`${user}:${password}`))}`;
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
    const base = this.#url.replace(/^ws/, "http").slice(0, -"/v1/ws".length);
    let answer;
    let found;
    try {
      answer = await fetch(`${base}${path}?${new URLSearchParams(given)}`, { headers });
      found = this.#parse(await answer.text());
    } catch (error) {
      throw new SowError("unreachable", `no answer of ${base}: ${error.message}`);
    }
    if (!answer.ok) throw failure(found);
    return found;
  }

  /** Send a command: `frame(cid)` is its text, or null while it cannot be sent yet. Resolves with its
   * last ack. `again` means that it can be sent again, `ofSession` that it is valid in this session
   * only; `onack(ack, error)` is called synchronously for each ack. */
  request({ frame, again = false, ofSession = false, last = "processed", onack = () => {} }) {
    return new Promise((resolve, reject) => {
      if (this.state === "closed") throw new SowError("disconnected", "the client is closed; connect again");
      const request = { frame, again, ofSession, last, onack, resolve, reject, cid: "", sent: false };
      this.#number(request);
      this.#send(request);
    });
  }

  #number(request) {
    this.#pending.delete(request.cid);
    request.cid = String(++this.#cids);
    request.sent = false;
    this.#pending.set(request.cid, request);
  }

  #send(request) {
    const text = this.#socket === null ? null : request.frame(request.cid);
    if (text === null) return;
    request.sent = true;
    this.#socket.send(text);
  }

  #sendWaiting() {
    for (const request of [...this.#pending.values()]) if (!request.sent) this.#send(request);
  }

  #settle(request, done) {
    this.#pending.delete(request.cid);
    done();
  }

  /** The session was resumed, but commands in flight may be lost: those without an ack before that of a
   * flush are sent again if they can be. */
  #findLost() {
    // With their cids: a request that is sent again before the flush is acknowledged has another one.
    const before = [...this.#pending].filter(([, request]) => request.sent);
    if (before.length > 0) {
      const waits = ([cid, request]) => this.#pending.get(cid) === request;
      const find = () => this.#sendAgain(before.filter(waits).map(([, request]) => request));
      this.request({ frame: (cid) => line({ c: "flush", cid }), onack: find }).catch(() => {});
    }
    this.#sendWaiting();
  }

  #sendAgain(requests) {
    for (const request of requests) {
      if (request.again) {
        this.#overtaken.add(request.cid);
        this.#number(request);
      } else {
        this.#settle(request, () => request.reject(lost()));
      }
    }
    this.#sendWaiting();
  }

  #startAgain(reason) {
    this.#sinks.clear();
    const before = [...this.#pending.values()].filter((request) => request.sent || request.ofSession);
    for (const followed of [...this.#followed]) followed.startAgain(reason);
    this.#sendAgain(before);
    this.#overtaken.clear(); // the new session does not answer them
  }

  // Lines.

  #onFrame(socket, data) {
    if (socket !== this.#socket) return;
    this.#received = true;
    try {
      for (const each of linesOf(data, this.#parse)) {
        this.#seen += 1;
        this.#take(each);
        if (this.#socket !== socket) break;
      }
    } catch (error) {
      // After an invalid frame the state might be wrong. Callbacks are guarded separately, so the error
      // is the server's.
      return this.end(new SowError("unreachable", `${this.#url} does not speak SOW: ${error.message}`));
    }
    const touched = [...this.#touched];
    this.#touched.clear();
    for (const followed of touched) followed.settle();
  }

  #take(each) {
    if (each.c === "ack") return this.#acknowledge(each);
    if (each.c === "close") {
      this.#farewell = each.reason || "no reason given"; // the close code follows
      return undefined;
    }
    if (each.c === "heartbeat") {
      this.conflated = each.conflated ?? this.conflated;
      this.dropped = each.dropped ?? this.dropped;
      return undefined;
    }
    return this.#sinks.get(each.s)?.onLine(each);
  }

  #acknowledge(ack) {
    const request = this.#pending.get(ack.cid);
    if (request === undefined) {
      if (this.#overtaken.delete(ack.cid)) this.#dropDuplicate(ack);
      else this.#sinks.get(ack.s)?.onLine(ack);
      return;
    }
    if (ack.status === "failure") {
      this.#settle(request, () => {
        const error = failure(ack);
        request.onack(ack, error);
        request.reject(error);
      });
      return;
    }
    request.onack(ack, null);
    if (ack.a === request.last) this.#settle(request, () => request.resolve(ack));
  }

  /** End the duplicate of a subscription that was sent twice; a replacement keeps its name. */
  #dropDuplicate({ s, status }) {
    if (s !== undefined && status === "success" && !this.#sinks.has(s)) this.unsubscribe(s);
  }

  unsubscribe(name) {
    // If the server refuses it or the session is lost, the subscription has ended anyway.
    const frame = (cid) => line({ c: "unsubscribe", s: name, cid });
    this.request({ frame, ofSession: true }).catch(() => {});
  }

  // Receivers of lines.

  name(name, sink) {
    this.#sinks.set(name, sink);
  }

  unname(name) {
    this.#sinks.delete(name);
  }

  follow(subscription) {
    this.#followed.add(subscription);
  }

  forget(subscription) {
    this.#followed.delete(subscription);
    this.#sinks.delete(subscription.name);
  }

  touch(subscription) {
    this.#touched.add(subscription);
  }

  /** A subscription has got its name, for which requests may wait. */
  named() {
    this.#sendWaiting();
  }
}

/** A line to send, without the fields that are undefined or null. */
function line(fields, bodies = []) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return [JSON.stringify(Object.fromEntries(given)), ...bodies].join("\n");
}

function silence(socket) {
  socket.onopen = socket.onmessage = socket.onclose = null;
}

/** The credentials of a logon. */
async function credentialsOf({ token, user, password, as }) {
  if (token !== undefined && user !== undefined) {
    throw final("bad request", "a token identifies the user; give it, or user and password, not both");
  }
  if (user !== undefined && password === undefined) {
    throw final("bad request", `user ${user} has no password; give password as well`);
  }
  const acting = as === undefined ? {} : { as };
  if (user !== undefined) return { user, password, ...acting };
  if (token === undefined) return acting;
  return { token: typeof token === "function" ? await token() : token, ...acting };
}

function asFinal(error) {
  FINAL.add(error);
  return error;
}

function final(reason, detail) {
  return asFinal(new SowError(reason, detail));
}

function closedByServer(reason) {
  return final("closed", `the server has closed the session: ${reason || "no reason given"}`);
}

function barred() {
  return final("auth failure", "the credentials are not valid any more: they have expired, or the user was removed; connect again");
}

function failure(ack) {
  return new SowError(ack.reason ?? "internal error", ack.detail ?? ack.reason ?? "the server gave no reason", ack);
}

function lost() {
  return new SowError("disconnected", "the connection was lost before the answer: the request may or may not have been applied");
}

/** Run a callback of the caller; its errors are reported as uncaught ones. */
function guarded(work) {
  try {
    work();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

// Subscriptions.

/** A FIFO queue: an array whose part before `#at` has been read. */
class Queue {
  #items = [];
  #at = 0;

  get length() {
    return this.#items.length - this.#at;
  }

  push(item) {
    this.#items.push(item);
  }

  shift() {
    const item = this.#items[this.#at];
    this.#items[this.#at] = undefined;
    this.#at += 1;
    if (this.#at * 2 >= this.#items.length) {
      // `shift` of an array moves all other items each time, so half of it is removed at once.
      this.#items = this.#items.slice(this.#at);
      this.#at = 0;
    }
    return item;
  }
}

/** A subscription to a topic or a pattern, which survives reconnects. */
class Following {
  name = "";
  bookmark = "";
  gaps = 0;
  #left = new Set(); // what has left since the bookmark: a replay from there says it again
  #leftChars = 0; // of these; the first are forgotten where they are too many
  #connection;
  #topic;
  #options;
  #listener; // gets messages instead of an iteration
  #unread = new Queue();
  #readers = [];
  #ended = false;
  #error = null;

  constructor(connection, topic, options, listener = null) {
    this.#connection = connection;
    this.#topic = topic;
    this.#options = options;
    this.#listener = listener;
  }

  get options() {
    return { ...this.#options };
  }

  async open() {
    this.#connection.follow(this);
    try {
      // A number means this log, also if another server answers later.
      for (const name of ["bookmark", "as_of"]) {
        const place = this.#options[name];
        if (place !== undefined && place !== null) this.#options[name] = withLog(String(place), this.#connection.log);
      }
      if (this.#connection.areSeveral) await this.#somewhere(() => this.#noteBeginning());
      await this.#somewhere(() => this.#subscribe(this.#options));
    } catch (error) {
      this.#connection.forget(this);
      throw error;
    }
  }

  /** What a request returns, at the first of several addresses whose server answers as it should. */
  async #somewhere(request) {
    for (;;) {
      try {
        return await request();
      } catch (error) {
        if (this.#ended || !this.#connection.areSeveral || !AWAY.includes(error.reason)) throw error;
        this.#connection.moveOn(error);
      }
    }
  }

  /** Learn the bookmark of this moment, by a query of no records: where to go on at another address if
   * nothing comes before the connection is lost. */
  async #noteBeginning() {
    const { snapshot, bookmark } = this.#options;
    if (snapshot || !NOW.includes(bookmark ?? "")) return;
    let name = "";
    const onLine = ({ c, bm }) => {
      if (c === "group_end" && bm !== undefined) this.bookmark = withLog(bm, this.#connection.log);
    };
    await this.#connection.request({
      again: true,
      last: "completed",
      frame: (cid) => line({ c: "sow", t: this.#topic, top_n: 0, cid, a: "processed,completed" }),
      onack: (ack, error) => {
        if (error !== null || ack.a === "completed") this.#connection.unname(name);
        else this.#connection.name((name = ack.s), { onLine });
      },
    });
  }

  /** `first` is called when the server acknowledges it, before any message. */
  #subscribe(options, first = () => {}) {
    const acks = options.bookmark === undefined ? "processed" : "processed,completed";
    return this.#connection.request({
      again: true,
      frame: (cid) => line({ ...subscriptionLine(this.#topic, options), cid, a: acks }),
      onack: (ack, error) => {
        if (error !== null) return;
        first();
        this.#accept(ack);
      },
    });
  }

  #accept(ack) {
    if (this.#ended) return this.#connection.unsubscribe(ack.s);
    this.name = ack.s;
    this.#connection.name(ack.s, this);
    return this.#connection.named();
  }

  /** Replace the subscription: `changes` are merged into its options. */
  async replace(changes) {
    const { as_of: _begun, ...before } = this.#options;
    const options = { ...before, ...checked(changes, SUBSCRIPTION_OPTIONS, "replace") };
    for (const [name, value] of Object.entries(options)) if (value === undefined || value === null) delete options[name];
    await this.#connection.request({
      again: true,
      // Not before the subscription has a name, which changes after a gap.
      frame: (cid) => (this.name === "" ? null : line({ ...subscriptionLine(this.#topic, options, ["replace"]), cid, s: this.name })),
      onack: (_ack, error) => {
        if (error !== null) return;
        this.#options = options;
        this.#listener?.replaced(options);
      },
    });
  }

  /** Subscribe on a new session, from the last bookmark if the subscription began with one. */
  startAgain(reason) {
    const { name } = this;
    if (name === "" || this.#ended) return; // not acknowledged yet, and sent again
    this.name = "";
    this.#leavePast();
    const { snapshot, bookmark } = this.#options;
    const { areSeveral } = this.#connection;
    const begun = areSeveral && !NOW.includes(bookmark ?? "") ? String(bookmark) : ""; // nothing has come: at the same place
    const place = this.bookmark === "" ? begun : goingOn(String(bookmark ?? ""), this.bookmark);
    const goesOn = !snapshot && place !== "" && (areSeveral || bookmark !== undefined);
    const options = goesOn ? { ...this.#options, bookmark: place } : this.#options;
    const report = (exact) => {
      if (exact && goesOn && areSeveral) return; // nothing is missing, nothing comes twice
      this.gaps += 1;
      this.#give({ command: "gap", reason, exact });
    };
    this.#subscribe(options, () => report(goesOn || Boolean(this.#options.snapshot))).catch((error) => {
      if (this.#ended) return undefined;
      if (AWAY.includes(error.reason)) {
        this.name = name; // so that it is begun there
        return areSeveral ? this.#connection.moveOn(error) : this.#connection.later(() => this.startAgain(reason));
      }
      if (!goesOn || !["another log", "invalid bookmark", "invalid topic"].includes(error.reason)) return this.end(error);
      // The missed updates are not in the log: continue with new ones.
      return this.#subscribe(this.#options, () => report(false)).catch((again) => this.end(again));
    });
  }

  /** The past has been sent: what is missing are the changes since, or for a live view the present. */
  #leavePast() {
    const { as_of, order_by, top_n, skip_n, snapshot, ...rest } = this.#options;
    if (as_of === undefined || this.bookmark === "") return;
    this.#options = this.#listener === null ? { ...rest, bookmark: this.bookmark } : { ...rest, order_by, top_n, skip_n, snapshot };
  }

  onLine(each) {
    if (each.c === "ack") return this.#complete(each);
    const message = { command: each.c };
    if (each.t !== undefined) message.topic = each.t;
    if (each.k !== undefined) message.key = each.k;
    if (each.d !== undefined) message.record = recordOf(each);
    if (each.bm !== undefined) message.bookmark = each.bm;
    for (const name of ["delta", "reason", "detail", "at", "ts", "edit", "seq", "past"]) if (each[name] !== undefined) message[name] = each[name];
    if (["p", "oof", "group_end"].includes(each.c) && each.bm !== undefined) this.bookmark = withLog(each.bm, this.#connection.log);
    if (this.#connection.areSeveral && this.#isRepeated(each)) return undefined;
    this.#give(message);
    if (each.c === "unsubscribed") this.end(null);
    return undefined;
  }

  /** Whether a line says again, at another server, that a record has left. */
  #isRepeated({ c, t, k, d, bm }) {
    const record = `${t} ${k ?? JSON.stringify(d)}`;
    if (c === "oof" && bm !== undefined) return this.#forget(record);
    if (c === "oof" && !this.#left.has(record)) {
      this.#left.add(record);
      this.#leftChars += record.length;
      while (this.#leftChars > LEFT_CHARS_MAX) this.#forget(this.#left.values().next().value);
    } else if (c !== "oof" && bm !== undefined) {
      this.#left.clear();
      this.#leftChars = 0;
    }
    return false;
  }

  #forget(record) {
    if (!this.#left.delete(record)) return false;
    this.#leftChars -= record.length;
    return true;
  }

  /** The log has been read to its end, or to that of a range, which ends the subscription. */
  #complete(ack) {
    if (ack.a !== "completed" || this.#options.bookmark === undefined) return;
    this.#give({ command: "completed" });
    if (/^\s*[[(]/.test(String(this.#options.bookmark))) this.end(null);
  }

  #give(message) {
    this.#connection.touch(this);
    if (this.#listener !== null) return this.#listener.onMessage(message);
    const reader = this.#readers.shift();
    if (reader !== undefined) return reader.resolve({ value: message, done: false });
    this.#unread.push(message);
    if (this.#unread.length > UNREAD_MAX) {
      this.close();
      this.#error = new SowError("not read", `${UNREAD_MAX} messages of ${this.#topic} are unread; read faster, or use live() or conflation`);
    }
    return undefined;
  }

  /** The end of a frame. */
  settle() {
    this.#listener?.settle();
  }

  end(error) {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#connection.forget(this);
    this.#listener?.end(error);
    for (const reader of this.#readers.splice(0)) this.#answer(reader);
  }

  #answer({ resolve, reject }) {
    if (this.#error === null) return resolve({ value: undefined, done: true });
    const error = this.#error;
    this.#error = null;
    return reject(error);
  }

  /** End it; messages that have arrived can still be read. */
  close() {
    if (this.#ended) return;
    const name = this.name;
    this.end(null);
    if (name !== "") this.#connection.unsubscribe(name);
  }

  next() {
    if (this.#unread.length > 0) return Promise.resolve({ value: this.#unread.shift(), done: false });
    return new Promise((resolve, reject) => {
      if (this.#ended) this.#answer({ resolve, reject });
      else this.#readers.push({ resolve, reject });
    });
  }
}

/** Messages of one topic, in order; an async iterator. */
class Subscription {
  #topic;
  #following;

  constructor(topic, following) {
    this.#topic = topic;
    this.#following = following;
  }

  get topic() {
    return this.#topic;
  }

  /** The current options. */
  get options() {
    return this.#following.options;
  }

  /** The server's name of it. */
  get name() {
    return this.#following.name;
  }

  /** The bookmark of the newest update received, with the name of its log. */
  get bookmark() {
    return this.#following.bookmark;
  }

  /** How often it had to start again. */
  get gaps() {
    return this.#following.gaps;
  }

  next() {
    return this.#following.next();
  }

  /** Replace the subscription: `changes` are merged into its options. */
  replace(changes) {
    return this.#following.replace(changes);
  }

  /** End it; messages that have arrived can still be read. */
  close() {
    this.#following.close();
  }

  /** Leaving a loop does not end the subscription: `close` does. */
  [Symbol.asyncIterator]() {
    return { next: () => this.next() };
  }
}

// Live views.

/** Pending changes of one reader: one per record, from the state last seen to the current one. */
class Changes {
  #waiting = new Map();
  #reader = null;
  #over = null;
  #forget;

  constructor(forget) {
    this.#forget = forget;
  }

  add(change) {
    const known = this.#waiting.get(change.key);
    const old = known === undefined ? change.old : known.old;
    this.#waiting.delete(change.key);
    if (old !== undefined || change.new !== undefined) this.#waiting.set(change.key, { ...change, old });
  }

  end(error) {
    this.#over = { error };
    this.settle();
  }

  settle() {
    if (this.#reader === null || (this.#waiting.size === 0 && this.#over === null)) return;
    const { resolve, reject } = this.#reader;
    this.#reader = null;
    this.#answer(resolve, reject);
  }

  #answer(resolve, reject) {
    const [first] = this.#waiting.values();
    if (first !== undefined) {
      this.#waiting.delete(first.key);
      resolve({ value: first, done: false });
    } else if (this.#over.error) {
      const { error } = this.#over;
      this.#over = { error: null };
      reject(error);
    } else {
      resolve({ value: undefined, done: true });
    }
  }

  next() {
    return new Promise((resolve, reject) => {
      if (this.#waiting.size > 0 || this.#over !== null) this.#answer(resolve, reject);
      else this.#reader = { resolve, reject };
    });
  }

  /** The end of a loop. */
  return() {
    this.#forget();
    this.end(null);
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

/** Records by SowKey, kept current. */
class Live extends Map {
  onchange = null;
  onend = null;
  #following;
  #connection;
  #topic;
  #isWindow = false;
  #isOver = false;
  #isWhole = true; // the next group is the whole content
  #holds = true; // lines are held until the end of a group
  #turn = [];
  #order = [];
  #rows = null;
  #changed = [];
  #readers = new Set();
  #synced;

  constructor(connection, topic, options) {
    super();
    this.#connection = connection;
    this.#topic = topic;
    this.#follow(liveOptions(options));
  }

  #follow(options) {
    this.#isWindow = Boolean(options.live);
    this.#isWhole = this.#holds = true;
    this.#turn = [];
    const following = new Following(this.#connection, this.#topic, options, {
      onMessage: (message) => following === this.#following && this.#onMessage(message),
      settle: () => this.#settle(),
      replaced: () => {
        this.#holds = true;
        this.#wait();
      },
      end: (error) => following === this.#following && this.#end(error),
    });
    this.#following = following;
  }

  /** A live view with its first snapshot. */
  static async open(connection, topic, options) {
    const live = new Live(connection, topic, options);
    live.#wait();
    await live.#following.open();
    await live.#synced.promise;
    return live;
  }

  /** Renew `#synced`: it resolves when the next group is complete. */
  #wait() {
    const before = this.#synced;
    const promise = new Promise((resolve, reject) => {
      this.#synced = { resolve, reject };
    });
    promise.catch(() => {}); // it may have no other handler
    this.#synced.promise = promise;
    before?.resolve(promise);
  }

  // Content.

  get topic() {
    return this.#topic;
  }

  /** The current options. */
  get options() {
    const all = Object.entries(this.#following.options);
    return Object.fromEntries(all.filter(([name]) => LIVE_OPTIONS.includes(name)));
  }

  /** How often it had to start again. */
  get gaps() {
    return this.#following.gaps;
  }

  /** The keys: of a window in its order, otherwise in the order in which they first came. */
  get order() {
    return this.#isWindow ? [...this.#order] : [...this.keys()];
  }

  /** The records in that order. */
  get rows() {
    this.#rows ??= this.order.map((key) => this.get(key));
    return this.#rows;
  }

  // Updates.

  #keyOf({ topic, key }) {
    return topic === undefined || topic === this.#topic ? key : `${topic}:${key}`;
  }

  #onMessage(message) {
    switch (message.command) {
      case "gap":
        this.#isWhole = this.#holds = true;
        this.#turn = [];
        break;
      case "group_begin":
        this.#holds = true;
        break;
      case "group_end":
        this.#holds = false;
        this.#apply();
        this.#synced.resolve();
        break;
      case "turn_end":
        this.#apply();
        break;
      case "sow":
      case "p":
      case "oof":
        this.#turn.push(message);
        if (!this.#holds && !this.#isWindow) this.#apply();
        break;
      case "unsubscribed":
        this.#end(null, message);
        break;
      default:
    }
  }

  /** Apply all messages that were held, at once. */
  #apply() {
    const turn = this.#turn;
    const isWhole = this.#isWhole;
    this.#turn = [];
    if (isWhole) this.#leaveBut(new Set(turn.map((message) => this.#keyOf(message))));
    for (const message of turn) {
      const key = this.#keyOf(message);
      const { command, record, delta } = message;
      if (message.past) continue; // an edit of an older event than the one that the record is
      if (command === "oof") this.#put(key, undefined, message);
      else if (delta && this.has(key) && !isObject(record)) return this.#takeWhole();
      else if (delta && this.has(key)) this.#put(key, merged(this.get(key), record), message);
      else if (isWhole && same(this.get(key), record)) this.#place(key, message.at);
      else this.#put(key, record, message);
    }
    return undefined;
  }

  /** Remove all records but these: a snapshot replaces the content. */
  #leaveBut(kept) {
    this.#isWhole = false;
    this.#order = [];
    for (const key of [...this.keys()]) if (!kept.has(key)) this.#put(key, undefined, { reason: "gap" });
  }

  /** A delta of a text format cannot be merged here: subscribe again, to whole records. */
  #takeWhole() {
    const before = this.#following;
    this.#follow({ ...before.options, delta: false, no_empties: false }); // no_empties is only for deltas
    before.close();
    this.#following.open().catch((error) => this.#end(error));
  }

  #put(key, record, { at, reason }) {
    const old = this.get(key);
    this.#place(key, record === undefined ? undefined : at);
    if (record === undefined) this.delete(key);
    else this.set(key, record);
    const change = { key, old, new: record };
    if (reason !== undefined) change.reason = reason;
    if (at !== undefined) change.at = at;
    this.#changed.push(change);
    for (const reader of this.#readers) reader.add(change);
  }

  /** Move a record to a position; undefined: remove it, or there are no positions. */
  #place(key, at) {
    this.#rows = null;
    const before = this.#order.indexOf(key);
    if (before >= 0) this.#order.splice(before, 1);
    if (at !== undefined) this.#order.splice(at, 0, key);
  }

  #settle() {
    if (this.#changed.length === 0) return;
    const changed = this.#changed;
    this.#changed = [];
    guarded(() => this.onchange?.(changed));
    for (const reader of this.#readers) reader.settle();
  }

  #end(error, { reason = "", detail = "" } = {}) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#settle();
    for (const reader of this.#readers) reader.end(error);
    this.#synced.reject(error ?? new SowError("disconnected", detail || reason || "the live view was closed"));
    guarded(() => this.onend?.({ error, reason: reason || error?.reason || "", detail: detail || error?.message || "" }));
  }

  // Methods.

  /** Changes from now on, `for await`. */
  changes() {
    const changes = new Changes(() => this.#readers.delete(changes));
    if (this.#isOver) changes.end(null);
    else this.#readers.add(changes);
    return changes;
  }

  async replace(changes) {
    checked(changes, LIVE_OPTIONS, "live.replace");
    const { as_of: _begun, ...before } = this.options;
    await this.#following.replace(liveOptions({ ...before, ...changes }));
    await this.#synced.promise;
  }

  close() {
    this.#end(null);
    this.#following.close();
  }
}

/** The subscription options of a live view. */
function liveOptions(options) {
  const isWindow = options.top_n !== undefined && options.top_n !== null;
  const window = isWindow ? { live: true, positions: true, skip_n: options.skip_n ?? 0 } : {};
  return { delta: true, ...options, snapshot: true, oof: true, ...window };
}

// Publishing exactly once.

const WINDOW_FRAMES = 64; // unacknowledged frames of a publisher
const LATER = ["busy", "replaying", "disk full", "store error", "store failing", "memory full", "internal error"];
const MOVES = ["not primary", "no quorum", "upstream lost", "outcome unknown"]; // reasons to look for the server that takes it, which are no errors

/** A publisher of a durable name, on a connection of its own. What is published waits here, in order, until
 * the server has it; the first has the number `#base`. After each logon what the server does not have is
 * sent, so that each message is stored once. */
class IdempotentPublisher {
  #name;
  #origin;
  #connection = null;
  #waiting = []; // frames: a head, bodies, and how many numbers they use
  #base = null;
  #renumbers = false; // the next logon numbers what waits
  #run = 0; // counts logons and rounds of sending; answers to earlier ones do not count
  #sent = 0; // frames of this round
  #errors = [];
  #fatal = null;
  #log = "";
  #drains = [];
  #isClosed = false;

  constructor(origin, name) {
    this.#origin = origin;
    this.#name = name;
  }

  get name() {
    return this.#name;
  }

  /** How many messages the server has not acknowledged. */
  get waiting() {
    return this.#waiting.reduce((sum, { count }) => sum + count, 0);
  }

  get #held() {
    return (this.#base ?? 1) + this.waiting - 1;
  }

  /** Publish one message or many; resolves once they wait here. Rejects with what speaks against an
   * earlier message, and then does nothing. */
  async publish(topic, records, options = {}) {
    const { delta, key, expires_s } = checked(options, ["delta", "key", "expires_s"], "publish");
    const { enc, bodies } = bodiesOf(records);
    const index = bodies.findIndex((body) => /[\r\n]/.test(body));
    if (index >= 0) throw unwritable("", index, "has a line break, which ends a body");
    this.#check();
    const c = delta ? "delta_publish" : "publish";
    for (let at = 0; at < bodies.length; at += FRAME_MESSAGES) {
      const some = bodies.slice(at, at + FRAME_MESSAGES);
      this.#add({ head: { c, t: topic, enc, k: key, x: expires_s }, bodies: some, count: some.length });
    }
  }

  /** Delete the records that match `filter`, or of these `keys`, in order with what is published. */
  async delete(topic, options = {}) {
    const { filter, keys } = checked(options, ["filter", "keys"], "delete");
    this.#check();
    this.#add({ head: { c: "sow_delete", t: topic, filter, keys: listed(keys) }, bodies: [], count: 1 });
  }

  /** Resolves when the server has everything; rejects with what speaks against a message. */
  async drain() {
    this.#check();
    while (this.#waiting.length > 0) {
      this.#start();
      await new Promise((done) => this.#drains.push(done));
      this.#check();
    }
    this.#check();
  }

  /** Go on after an error of the name; after "sequence lost" what waits is numbered again. */
  restart() {
    this.#renumbers = this.#fatal?.reason === "sequence lost";
    this.#fatal = null;
    this.#errors = [];
    this.#leave();
    if (this.#waiting.length > 0) this.#start();
  }

  /** Close the connection without waiting for acks. */
  close() {
    this.#isClosed = true;
    this.#leave();
    this.#wake();
  }

  #check() {
    if (this.#isClosed) throw new SowError("disconnected", "the publisher is closed; make another one");
    if (this.#errors.length > 0) throw this.#errors.shift();
    if (this.#fatal !== null) throw this.#fatal;
  }

  #add(entry) {
    this.#waiting.push(entry);
    this.#start();
    this.#send();
  }

  #wake() {
    for (const done of this.#drains.splice(0)) done();
  }

  #fail(error) {
    this.#fatal = error;
    this.#leave();
    this.#wake();
  }

  // The connection.

  #start() {
    if (this.#connection !== null || this.#isClosed) return;
    const connection = (this.#connection = this.#origin.beside(this.#name));
    let hasBegun = false;
    connection.onlogon = (ack) => {
      hasBegun = true;
      this.#takeUp(ack);
    };
    connection.onstate = ({ state, reason }) => {
      if (!hasBegun || state !== "closed" || connection !== this.#connection) return;
      this.#fail(new SowError("closed", `${reason || "the connection was closed"}; restart() connects again`));
    };
    connection.begin().catch((error) => {
      if (connection !== this.#connection) return;
      if (!["unreachable", "disconnected"].includes(error.reason)) {
        this.#fail(error);
        return;
      }
      this.#connection = null; // what waits is sent when somebody asks for it again
      this.#errors.push(error);
      this.#wake();
    });
  }

  #leave() {
    const connection = this.#connection;
    this.#connection = null;
    this.#run += 1;
    connection?.close();
  }

  #takeUp({ sequence = 0, log = "" }) {
    if (this.#base !== null && this.#log !== log) {
      this.#fail(new SowError("another log", `the server has another log (${log}) than before (${this.#log})`));
      return;
    }
    this.#log = log;
    if (this.#base === null || this.#renumbers) {
      this.#base = sequence + 1;
      this.#renumbers = false;
    } else if (sequence < this.#base - 1 || sequence > this.#held) {
      this.#lose(sequence);
      return;
    } else this.#applied(sequence + 1 - this.#base);
    this.#again();
  }

  #lose(highest) {
    const numbers = `up to ${this.#held}, and the server has ${highest}`;
    const detail = `what waits for ${this.#name} has numbers ${numbers}: the name has expired or gone back, or another program uses it; restart() numbers it again`;
    this.#fail(new SowError("sequence lost", detail, { held: this.#held, highest }));
  }

  // Frames.

  #again() {
    this.#run += 1;
    this.#sent = 0;
    this.#send();
  }

  #send() {
    while (this.#connection?.state === "connected" && this.#base !== null && this.#sent < Math.min(WINDOW_FRAMES, this.#waiting.length)) {
      const { head, bodies, count } = this.#waiting[this.#sent];
      const seq = this.#base + this.#waiting.slice(0, this.#sent).reduce((sum, one) => sum + one.count, 0);
      const run = this.#run;
      this.#sent += 1;
      const n = bodies.length > 0 ? bodies.length : undefined;
      const frame = (cid) => line({ c: head.c, seq, ...head, n, cid, a: "persisted" }, bodies);
      this.#connection.request({ frame, last: "persisted" }).then(
        () => run === this.#run && this.#onAck(count),
        (error) => run === this.#run && this.#onRefusal(error),
      );
    }
  }

  #onAck(count) {
    this.#sent -= 1;
    this.#applied(count);
    this.#send();
  }

  /** So many messages, from the first on, are on the server. */
  #applied(count) {
    this.#base += count;
    while (count > 0) {
      const first = this.#waiting[0];
      if (first.count <= count) {
        count -= first.count;
        this.#waiting.shift();
      } else {
        this.#waiting[0] = { ...first, bodies: first.bodies.slice(count), count: first.count - count };
        count = 0;
      }
    }
    this.#wake();
  }

  /** The first frame is refused, and so is all behind it: its numbers do not follow. */
  #onRefusal(error) {
    if (error.reason === "disconnected") return; // it is sent again after the next logon
    if (error.reason === "sequence gap") {
      this.#lose(error.expected - 1);
      return;
    }
    if (MOVES.includes(error.reason)) {
      this.#leave();
      this.#start(); // at the server that takes it
      return;
    }
    if (!this.#errors.some(({ reason }) => reason === error.reason && LATER.includes(reason))) this.#errors.push(error);
    if (LATER.includes(error.reason)) {
      this.#leave(); // and connects again with the next call
      this.#wake();
      return;
    }
    const [first] = this.#waiting;
    if (error.index === undefined || first.count === 1) this.#waiting.shift();
    else {
      const bodies = first.bodies.filter((_, index) => index !== error.index);
      this.#waiting[0] = { ...first, bodies, count: bodies.length };
    }
    this.#wake();
    this.#again();
  }
}

// The client.

/** The client of one server, created by `connect`. */
class Sow {
  onstate = null;
  #connection;
  #writer = null; // the connection for writes, if the other one is to a follower
  #publishers = [];

  constructor(connection) {
    this.#connection = connection;
  }

  get state() {
    return this.#connection.state;
  }

  /** How many messages the server has folded into later ones for this client, or dropped. */
  get conflated() {
    return this.#connection.conflated;
  }

  get dropped() {
    return this.#connection.dropped;
  }

  /** The records that match, as of one moment: the present one, or `as_of` a bookmark or a time. */
  async query(topic, options = {}) {
    checked(options, QUERY_OPTIONS, "query");
    const then = options.as_of === undefined || options.as_of === null ? {} : { as_of: String(options.as_of) };
    let records = [];
    let keys = [];
    let bookmark = "";
    let name = "";
    let advice = [];
    const sink = {
      onLine: (each) => {
        if (each.c === "sow") {
          records.push(recordOf(each));
          keys.push(each.k);
        } else if (each.c === "group_end") bookmark = each.bm;
      },
    };
    const ack = await this.#connection.request({
      again: true,
      last: "completed",
      frame: (cid) => {
        this.#connection.unname(name); // a query that is sent again starts again
        [records, keys] = [[], []];
        return line({ c: "sow", t: topic, ...queryFields(options), ...then, cid, a: "processed,completed" });
      },
      onack: (ack, error) => {
        if (error !== null || ack.a === "completed") this.#connection.unname(name);
        else {
          advice = ack.advice ?? [];
          this.#connection.name((name = ack.s), sink);
        }
      },
    });
    const more = { matches: ack.matches, bookmark, order: keys, advice };
    for (const [field, value] of Object.entries(more)) Object.defineProperty(records, field, { value });
    return records;
  }

  /** The events of one record of a series, the oldest first; `key` is its SowKey, or `key=` and values. */
  async events(topic, key, options = {}) {
    const path = ["/v1/topics", topic, "records", key, "events"].map((part, at) => (at % 2 ? encodeURIComponent(part) : part));
    return this.#connection.get(path.join("/"), checked(options, EVENT_OPTIONS, "events"));
  }

  /** Messages of a topic from now on, or from a bookmark on; with `snapshot` its records come first. */
  async subscribe(topic, options = {}) {
    checked(options, SUBSCRIPTION_OPTIONS, "subscribe");
    const following = new Following(this.#connection, topic, { ...options });
    await following.open();
    return new Subscription(topic, following);
  }

  /** The records of a topic as a map that is kept current; with `top_n` as ordered rows. */
  async live(topic, options = {}) {
    return Live.open(this.#connection, topic, checked(options, LIVE_OPTIONS, "live"));
  }

  /** Publish one message or many; resolves to the last one's bookmark once all are durable. */
  async publish(topic, records, options = {}) {
    const { delta, key, expires_s } = checked(options, ["delta", "key", "expires_s"], "publish");
    const { enc, bodies } = bodiesOf(records);
    const head = { c: delta ? "delta_publish" : "publish", t: topic, enc, k: key, x: expires_s, a: "persisted" };
    const acks = [];
    for (let start = 0, end; start < bodies.length; start = end) {
      const isBroken = (body) => /[\r\n]/.test(body);
      end = start + 1;
      while (!isBroken(bodies[start]) && end < bodies.length && end - start < FRAME_MESSAGES && !isBroken(bodies[end])) end += 1;
      acks.push(this.#publish(head, bodies.slice(start, end), start, isBroken(bodies[start])));
    }
    const results = await Promise.all(acks);
    return results.at(-1)?.bm ?? "";
  }

  async #publish(head, bodies, start, alone) {
    try {
      return await this.#write({
        last: "persisted",
        frame: (cid) => (alone ? line({ ...head, cid, d: bodies[0] }) : line({ ...head, cid, n: bodies.length }, bodies)),
      });
    } catch (error) {
      if (error.index !== undefined) error.index += start;
      throw error;
    }
  }

  /** Send a write, after a refusal of a follower to the primary that it names. */
  async #write(request) {
    if (this.#writer?.state === "closed") this.#writer = null;
    const writer = this.#writer;
    try {
      return await (writer ?? this.#connection).request(request);
    } catch (error) {
      if (error.reason !== "not primary" || !error.primary) throw error;
      // What was refused together goes on together, in its order.
      if (this.#writer === writer) this.#toPrimary(error.primary);
      return this.#writer.request(request);
    }
  }

  #toPrimary(primary) {
    this.#writer?.close();
    this.#writer = this.#connection.toPrimary(primary);
    this.#writer.begin().catch(() => {}); // those who wait for it get the error
  }

  /** A publisher of a durable name, whose messages are stored exactly once. */
  idempotentPublisher(name) {
    const made = new IdempotentPublisher(this.#connection, name);
    this.#publishers.push(made);
    return made;
  }

  /** Delete the records that match `filter`, or of these `keys`; resolves to their number. */
  async delete(topic, options = {}) {
    const { filter, keys } = checked(options, ["filter", "keys"], "delete");
    const ack = await this.#write({
      frame: (cid) => line({ c: "sow_delete", t: topic, filter, keys: listed(keys), cid }),
    });
    return ack.deleted;
  }

  /** Disconnect until `resume`; the server keeps the session, and folds pending updates. */
  pause() {
    this.#connection.pause();
  }

  resume() {
    this.#connection.resume();
  }

  close() {
    for (const publisher of this.#publishers.splice(0)) publisher.close();
    this.#writer?.close();
    this.#connection.close();
  }
}
