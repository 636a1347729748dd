// The pages of one topic as tabs: its records, what an interval saves, what a query costs, what it is.
// Each is an address of its own, and the filter goes along.

import {html} from "./parts.js";
import {linkTo} from "./address.js";

const TABS = {topic: "Records", slider: "Conflation", explain: "Plan", definition: "Definition"};

export function Tabs({page, name, params = {}}) {
  if (!name) return null;
  const {filter, order} = params;
  return html`<nav class="tabs" aria-label=${`Pages of ${name}`}>
    ${Object.entries(TABS).map(
      ([target, title]) => html`<a
        key=${target}
        href=${linkTo(target, name, {filter, order: target === "slider" ? "" : order})}
        aria-current=${target === page ? "page" : null}
        >${title}</a
      >`,
    )}
  </nav>`;
}
