// Two minutes of a topic or a record in the space of a word: what comes in, and what goes out.

import {html} from "./parts.js";

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
