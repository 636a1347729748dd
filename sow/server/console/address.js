// The address of what is shown: everything that makes a view stands in it, so that it can be kept,
// sent to somebody and gone back to. It is behind the #, since the server has one page:
// #/topic/quotes?filter=/bid > 10&order=/symbol

import {signal} from "./parts.js";

function read(hash) {
  const [path, query = ""] = hash.slice(1).split(/\?(.*)/s);
  const [page = "", name = ""] = path.split("/").slice(1);
  return {
    page: page || "topics",
    name: decode(name),
    asked: Object.fromEntries(new URLSearchParams(query)),
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

// Browsers take a new address only so often, and then no more or with an error (Safari: 100 in 30 s,
// Chromium: 200 in 10 s), and a key that is held down asks for more. What is shown follows at once; the
// address bar, after some steps, no more often than it may, and before anybody goes elsewhere.
const WRITTEN_EACH_MS = 350;
const AT_ONCE = 8;
let due = null;
let timer = 0;
let paidUntil = 0; // until when each step has had its time
let written = location.hash;

function write() {
  clearTimeout(timer);
  timer = 0;
  // Somebody who has gone elsewhere meanwhile is not called back.
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

// The address of a page, for a link; what is empty is left out.
export function linkTo(page, name = "", asked = {}) {
  const kept = Object.entries(asked).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(kept).toString();
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

// Shows another page in place of this one, which is then no step back.
export function goTo(page, name, asked) {
  due = linkTo(page, name, asked);
  address.value = read(due);
  const wait_ms = paidUntil - performance.now() - AT_ONCE * WRITTEN_EACH_MS;
  if (wait_ms <= 0) write();
  else timer ||= setTimeout(write, wait_ms);
}

// Shows the same page with something else asked for.
export function ask(changes) {
  const {page, name, asked} = address.peek();
  goTo(page, name, {...asked, ...changes});
}
