// The address of the view: it contains everything that determines the view, so that it can be
// bookmarked, shared and reached by the back button. It is after the #, since the server has one page:
// #/topic/quotes?filter=/bid > 10&order=/symbol

import {signal} from "./parts.js";

function read(hash) {
  const [path, query = ""] = hash.slice(1).split(/\?(.*)/s);
  const [page = "", name = ""] = path.split("/").slice(1);
  return {
    page: page || "topics",
    name: decode(name),
    params: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const address = signal(read(location.hash));

// Browsers limit changes of the address (Safari: 100 in 30 s, Chromium: 200 in 10 s), and a key held
// down makes more. The view changes at once; the address bar, after some steps, only as often as it
// may, and before the user navigates elsewhere.
const WRITTEN_EACH_MS = 350;
const AT_ONCE = 8;
let due = null;
let timer = 0;
let paidUntil = 0; // the time that the changes so far have used up
let written = location.hash;

function write() {
  clearTimeout(timer);
  timer = 0;
  // Not if the user has navigated elsewhere meanwhile.
  if (due === null || location.hash !== written) return;
  history.replaceState(null, "", due);
  paidUntil = Math.max(paidUntil, performance.now()) + WRITTEN_EACH_MS;
  [due, written] = [null, location.hash];
}

addEventListener("hashchange", () => {
  [due, written] = [null, location.hash];
  address.value = read(location.hash);
});
addEventListener("pagehide", write);
addEventListener("click", write, {capture: true});

// The address of a page, for a link; empty parameters are left out.
export function linkTo(page, name = "", params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(kept).toString();
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

// Replaces this page by another, without an entry in the history.
export function goTo(page, name, params) {
  due = linkTo(page, name, params);
  address.value = read(due);
  const wait_ms = paidUntil - performance.now() - AT_ONCE * WRITTEN_EACH_MS;
  if (wait_ms <= 0) write();
  else timer ||= setTimeout(write, wait_ms);
}

// Changes parameters of the page.
export function setParams(changes) {
  const {page, name, params} = address.peek();
  goTo(page, name, {...params, ...changes});
}
