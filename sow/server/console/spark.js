// Two minutes of a topic or a record in the space of a word: what comes in, and what goes out.

import {html, useEvery, useState} from "./parts.js";
import {read, topicPath} from "./server.js";
import * as format from "./format.js";

const KEPT = 120;

export function Spark({history}) {
  if (!history || history.length < 2) return null;
  const most = Math.max(1, ...history.map(([taken]) => taken));
  const path = (which) =>
    history
      .map((one, place) => {
        const x = (96 * (KEPT - history.length + place)) / (KEPT - 1);
        return `${place ? "L" : "M"}${x.toFixed(1)} ${(17 - (15 * one[which]) / most).toFixed(1)}`;
      })
      .join("");
  return html`<svg class="spark" viewBox="0 0 96 18" preserveAspectRatio="none" aria-hidden="true">
    <path d=${path(0)} /><path class="out" d=${path(1)} />
  </svg>`;
}

// The updates of each second that the server has kept: of a topic, or of one of its records, which it
// begins to count when somebody looks at it.
export function Updates({name, record = ""}) {
  const [rates, setRates] = useState(null);
  const path = topicPath(name, "/rates");
  useEvery(1000, () => read(path, {k: record}).then(setRates, () => setRates(null)), [path, record]);
  if (!rates?.in.length) return null;
  const sum = rates.in.reduce((all, one) => all + one, 0);
  return html`<section class="updates" aria-label=${record ? "Its updates" : "Updates"}>
    <h2>Updates</h2>
    <${Spark} history=${rates.in.map((taken, at) => [taken, rates.out[at]])} />
    <div class="dim" id=${record ? "record-rates" : "topic-rates"}>${format.count(sum)} in ${rates.in.length} s, ${format.rate(Math.max(...rates.in))} a second at most</div>
  </section>`;
}
