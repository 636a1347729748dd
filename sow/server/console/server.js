// The server that this page came from: its addresses under /v1, and the one WebSocket of the page
// (sow.js). Both are asked relative to where this file came from, so that a proxy may have put the
// console below any path. Who is asked who he is says it once; it is kept as long as the tab.

import {connect, parseExact} from "../sow.js";
import {signal} from "./parts.js";

const BASE = new URL("..", import.meta.url);
const KEPT = "sow-credentials";
// Each page is called by itself, so that it finds its own session among others.
export const CLIENT = `console ${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;

// What else is at this address may keep something under that name, too.
function kept() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT));
    return found?.token || found?.user ? found : null;
  } catch {
    return null;
  }
}

// {user, password} or {token}; null as long as nobody has been asked for them.
export const credentials = signal(kept());
// The server wants to know who this is.
export const asks = signal(false);
// How the WebSocket is: connecting, connected, reconnecting, paused, closed.
export const state = signal("closed");

export class Refused extends Error {
  constructor(status, told) {
    super(told.detail || told.title || `the server answers ${status}`);
    Object.assign(this, told, {status});
  }
}

function authorization() {
  const known = credentials.peek();
  if (!known) return {};
  if (known.token) return {Authorization: `Bearer ${known.token}`};
  const bytes = new TextEncoder().encode(`${known.user}:${known.password}`);
  return {Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}`};
}

// A browser that is asked for a password by an address to which it may send one opens a window of
// its own, so it may not: the console has a page for that. A proxy in between may know people by a
// cookie, and be the one that answers; then cookies are sent.
let cookies = "omit";

async function fetched(url, options) {
  if (cookies === "omit") {
    try {
      const answer = await fetch(url, {...options, credentials: cookies});
      const kind = answer.headers.get("Content-Type") || "";
      if (answer.ok || kind.startsWith("application/problem+json")) return answer;
    } catch {
      // The proxy has sent us somewhere else, or there is nobody.
    }
    cookies = options.method === "GET" ? "same-origin" : cookies;
  }
  return fetch(url, {...options, credentials: cookies});
}

// What an address answers; raises Refused. `asked` becomes the query string.
export async function call(path, asked = {}, {method = "GET", body, headers = {}} = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(asked)) {
    if (value !== "" && value != null) url.searchParams.set(name, value);
  }
  const options = {
    method,
    body,
    headers: {Accept: "application/json", ...authorization(), ...headers},
    cache: "no-store",
  };
  const answer = await fetched(url, options).catch(() => {
    throw new Refused(0, {detail: "The server does not answer. This page goes on when it does."});
  });
  if (answer.ok) return answer;
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // a proxy's own page
  }
  if (answer.status === 401) asks.value = true;
  throw new Refused(answer.status, told);
}

// Records may have integers that a number does not hold: they are shown as they are.
export const read = async (path, asked) => parseExact(await (await call(path, asked)).text());

export const topicPath = (name, more = "") => `v1/topics/${encodeURIComponent(name)}${more}`;

export const addressOf = (path = "") => new URL(path, BASE).href.replace(/\/$/, "");

// The one connection, made when it is first needed.
let connecting = null;
let connected = null;

export function sow() {
  connecting ??= begin();
  return connecting;
}

async function begin() {
  state.value = "connecting";
  try {
    connected = await connect({url: BASE.href, name: CLIENT, exact: true, ...credentials.peek()});
  } catch (error) {
    connecting = null;
    state.value = "closed";
    if (error.reason === "auth failure") asks.value = true;
    throw error;
  }
  state.value = connected.state;
  connected.onstate = (now) => {
    state.value = now.state;
    if (now.state === "closed") connecting = connected = null;
  };
  if (document.hidden) connected.pause();
  return connected;
}

export function logOn(known) {
  credentials.value = known;
  if (known) sessionStorage.setItem(KEPT, JSON.stringify(known));
  else sessionStorage.removeItem(KEPT);
  connected?.close();
  asks.value = known === null;
}

// A page that is left says so, or the server would keep its session for it to come back.
addEventListener("pagehide", () => connected?.close());

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) connected?.pause();
  else connected?.resume();
});
