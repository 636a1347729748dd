// The server of this page: its HTTP API under /v1, and the one WebSocket of the page (sow.js). Both
// addresses are relative to that of this file, so that a proxy may put the console below any path.
// Credentials are entered once, and kept as long as the tab.

import {connect, parseExact} from "../sow.js";
import {signal} from "./parts.js";

const BASE = new URL("..", import.meta.url);
const KEPT = "sow-credentials";
// A unique name, so that the page finds its own session.
export const CLIENT = `console ${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;

// Another application at this address may use the same key.
function kept() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT));
    return found?.token || found?.user ? found : null;
  } catch {
    return null;
  }
}

// {user, password} or {token}; null before a logon.
export const credentials = signal(kept());
// Whether the server requires credentials.
export const needsLogon = signal(false);
// The state of the WebSocket: connecting, connected, reconnecting, paused, closed.
export const state = signal("closed");

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answers ${status}`);
    Object.assign(this, problem, {status});
  }
}

function authorization() {
  const known = credentials.peek();
  if (!known) return {};
  if (known.token) return {Authorization: `Bearer ${known.token}`};
  const bytes = new TextEncoder().encode(`${known.user}:${known.password}`);
  return {Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}`};
}

// Without credentials in fetch, a browser does not open its own password dialog: the console has a page
// for that. A proxy may authenticate users by a cookie and answer itself; then cookies are sent.
let cookies = "omit";

async function fetched(url, options) {
  if (cookies === "omit") {
    try {
      const answer = await fetch(url, {...options, credentials: cookies});
      const kind = answer.headers.get("Content-Type") || "";
      if (answer.ok || kind.startsWith("application/problem+json")) return answer;
    } catch {
      // The proxy redirects elsewhere, or no server answers.
    }
    cookies = options.method === "GET" ? "same-origin" : cookies;
  }
  return fetch(url, {...options, credentials: cookies});
}

// The answer of an address; throws Refused. `params` is the query string.
export async function call(path, params = {}, {method = "GET", body, headers = {}} = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(params)) {
    if (value !== "" && value != null) url.searchParams.set(name, value);
  }
  const options = {
    method,
    body,
    headers: {Accept: "application/json", ...authorization(), ...headers},
    cache: "no-store",
  };
  const answer = await fetched(url, options).catch(() => {
    throw new Refused(0, {detail: "The server does not answer. This page continues when it does."});
  });
  if (answer.ok) return answer;
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // a proxy's own page
  }
  if (answer.status === 401) needsLogon.value = true;
  throw new Refused(answer.status, problem);
}

// Records may have integers that a number does not represent: they are shown exactly.
export const read = async (path, params) => parseExact(await (await call(path, params)).text());

// Whether the user may administer the server: null until it is known.
export const isAdmin = signal(null);

export async function learnRights() {
  try {
    await read("v1/log/status");
    isAdmin.value = true;
  } catch (error) {
    isAdmin.value = error.status === 403 ? false : null;
  }
}

// What the server is called, which it says to everybody: {name, environment, colour}.
export const server = signal({});

export async function learnServer() {
  try {
    server.value = await read("v1/status");
  } catch {
    // An earlier version, or none at the moment: the header says nothing then.
  }
}

// Whether the server takes messages, and what an operator should know, as a sentence.
export async function health() {
  const url = new URL("readyz", BASE);
  const answer = await fetched(url, {method: "GET", headers: authorization(), cache: "no-store"}).catch(() => null);
  if (!answer) return {isGood: false, text: "no answer"};
  return {isGood: answer.ok, text: (await answer.text()).trim()};
}

// Saves an answer as a file of the user's.
export async function save(name, path, params) {
  saveText(name, await (await call(path, params, {headers: {Accept: "*/*"}})).blob());
}

export function saveText(name, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content]));
  Object.assign(document.createElement("a"), {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const topicPath = (name, more = "") => `v1/topics/${encodeURIComponent(name)}${more}`;

export const addressOf = (path = "") => new URL(path, BASE).href.replace(/\/$/, "");

// The one connection, opened when it is first needed.
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
    if (error.reason === "auth failure") needsLogon.value = true;
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
  needsLogon.value = known === null;
}

// Closed when the page is left, so that the server does not keep its session for a reconnect.
addEventListener("pagehide", () => connected?.close());

// A hidden page requests nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) connected?.pause();
  else connected?.resume();
});
