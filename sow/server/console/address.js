// The address of what is shown: everything that makes a view stands in it, so that it can be kept,
// sent to somebody and gone back to. It is behind the #, since the server has one page:
// #/topic/quotes?filter=/bid > 10&order=/symbol

import {signal} from "./parts.js";

function read() {
  const [path, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
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

export const address = signal(read());

addEventListener("hashchange", () => {
  address.value = read();
});

// The address of a page, for a link; what is empty is left out.
export function linkTo(page, name = "", asked = {}) {
  const kept = Object.entries(asked).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(kept).toString();
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

// Shows another page in place of this one, which is then no step back.
export function goTo(page, name, asked) {
  history.replaceState(null, "", linkTo(page, name, asked));
  address.value = read();
}

// Shows the same page with something else asked for.
export function ask(changes) {
  const {page, name, asked} = address.peek();
  goTo(page, name, {...asked, ...changes});
}
