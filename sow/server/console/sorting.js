// Tables that a click on a head sorts. `sort` in the address is the name of a column, with - from the
// greatest on; the heads of numbers begin with that.

import {html} from "./parts.js";
import {setParams} from "./address.js";

// `values` has what each column is sorted by; without one of them the rows stay as they come.
export function sorted(rows, values, sort) {
  const value = Object.hasOwn(values, sort.replace(/^-/, "")) && values[sort.replace(/^-/, "")];
  if (!value) return rows;
  const way = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    return a === b ? 0 : a < b ? -way : way;
  });
}

export function Head({column, sort, text, minor}) {
  const isOn = sort.replace(/^-/, "") === column;
  const [first, second] = text ? [column, `-${column}`] : [`-${column}`, column];
  const next = sort === first ? second : sort === second ? "" : first;
  return html`<th scope="col" class="${text ? "" : "number"} ${minor ? "minor" : ""}" aria-sort=${isOn ? (sort.startsWith("-") ? "descending" : "ascending") : null}>
    <button class="quiet sorts" onClick=${() => setParams({sort: next})}>${column}${isOn ? (sort.startsWith("-") ? " ▼" : " ▲") : ""}</button>
  </th>`;
}
