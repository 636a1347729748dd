// Time travel: a slider from the oldest moment that the log still has until now, and a box for an exact
// one. What is chosen stands in the address as `as_of`, which may be a bookmark, too.

import {html, useEvery, useState} from "./parts.js";
import {read} from "./server.js";
import {moment} from "./format.js";

const EVERY_MS = 30_000;
const STEPS = 1000;

// A moment as a box for moments has it: by the user's clock.
const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

export function TimeTravel({asOf, onSet}) {
  const [extent, setExtent] = useState(null);
  // Of the whole log, since conflated topics and views are computed from others. Who may not read it has
  // no past to look at.
  useEvery(EVERY_MS, () => read("v1/log/extent").then(setExtent, () => setExtent(null)), []);
  const [since, until] = extent ? [extent.since_us / 1000, extent.ts_us / 1000] : [NaN, NaN];
  if (!asOf && !(until > since)) return null;
  const at = /^\d+$/.test(asOf) ? NaN : Date.parse(asOf);
  const place = asOf && at < until ? Math.round((STEPS * Math.max(0, at - since)) / (until - since)) : STEPS;
  const set = (chosen) => onSet(chosen >= STEPS ? "" : new Date(since + ((until - since) * chosen) / STEPS).toISOString());
  const text = !asOf ? "now" : Number.isNaN(at) ? asOf : moment(asOf);
  return html`<div class="travel">
    <span aria-hidden="true">As of</span>
    <input aria-label="As of" type="range" min="0" max=${STEPS} value=${place} aria-valuetext=${text} disabled=${!extent} onChange=${(event) => set(Number(event.target.value))} />
    <output class=${asOf ? "code past" : "code"}>${text}</output>
    <input aria-label="Moment" type="datetime-local" step="1" value=${Number.isNaN(at) ? "" : local(at)} disabled=${!extent} onChange=${({target}) => onSet(target.value && new Date(target.value).toISOString())} />
    ${asOf && html`<button onClick=${() => onSet("")}>Now</button>`}
  </div>`;
}
