// Facets: what the records have that pass the filter in force. Of a field with few values the
// commonest with their counts, of a number its range in bars; a click adds a term to the filter. Both
// are aggregated queries of all records, so they are exact, and made seldom: each waits ten times
// as long as its answer took. Over very many records they begin with a click.

import {html, useEffect, useEvery, useState} from "./parts.js";
import {read, topicPath} from "./server.js";
import {Updates} from "./spark.js";
import {joined, termOf} from "./terms.js";
import * as format from "./format.js";

const EVERY_MS = 5000;
const VALUES_SHOWN = 8;
const OPEN_AT_FIRST = 3;
// Counting so many takes the server about as long as drawing a page.
export const RECORDS_AT_ONCE = 100_000;
const BARS = 12;
// A field that no record has: all of them are one group of it.
const ALL = "/$all";

const queried = (name, filter, projection, grouping, more = {}) =>
  read(topicPath(name, "/records"), {filter, projection: `[${projection.join(",")}]`, grouping: `[${grouping}]`, ...more});

async function valuesOf(name, path, filter) {
  const found = await queried(name, filter, ["COUNT(1) AS /n", `${path} AS /v`], path, {order_by: "/n DESC", top_n: VALUES_SHOWN + 1});
  return {values: found.slice(0, VALUES_SHOWN).map(({n, v}) => ({n, v})), hasMore: found.length > VALUES_SHOWN};
}

// The counts of a number in bars of equal width between its least and its greatest.
async function rangeOf(name, path, filter) {
  const numbers = [`MIN(${path}) AS /least`, `MAX(${path}) AS /most`, `AVG(${path}) AS /mean`, `COUNT(${path}) AS /n`];
  const [all] = await queried(name, filter, numbers, ALL);
  if (!format.isNumber(all?.least) || !format.isNumber(all?.most)) return null;
  const least = Number(all.least);
  const width = (Number(all.most) - least) / BARS;
  if (!(width > 0) || !Number.isFinite(width)) return {...all, bars: []};
  const edge = (place) => ({0: all.least, [BARS]: all.most})[place] ?? Number((least + place * width).toPrecision(12));
  const within = (place) => `${path} >= ${edge(place)} AND ${path} ${place === BARS - 1 ? "<=" : "<"} ${edge(place + 1)}`;
  const terms = Array.from({length: BARS}, (_, place) => within(place));
  const [counts] = await queried(name, filter, terms.map((term, place) => `SUM(IF(${term}, 1, 0)) AS /b${place}`), ALL);
  return {...all, bars: terms.map((term, place) => ({term, n: counts?.[`b${place}`] ?? 0, from: edge(place), to: edge(place + 1)}))};
}

function Values({path, found, onAdd}) {
  const most = Math.max(1, ...found.values.map(({n}) => n));
  return html`<ul class="facet">
      ${found.values.map(({n, v}, place) => {
        const term = termOf(path, v);
        return html`<li key=${place}>
          <button class="quiet" disabled=${!term} title=${term ?? ""} onClick=${() => onAdd(term)}>
            <span class="share" style=${{width: `${(100 * n) / most}%`}}></span>
            <span class="what">${v === undefined || v === null ? html`<i class="special">null, empty or absent</i>` : html`<span class=${format.isSpecial(v) ? "special" : ""}>${format.cell(v)}</span>`}</span><span class="number">${format.count(n)}</span>
          </button>
        </li>`;
      })}
    </ul>
    ${found.hasMore && html`<div class="faint">the commonest ${VALUES_SHOWN}</div>`}
    ${!found.values.length && html`<div class="faint">no records</div>`}`;
}

function Range({path, found, onAdd}) {
  if (!found) return html`<div class="faint">no numbers</div>`;
  const most = Math.max(1, ...found.bars.map(({n}) => n));
  return html`<div class="bars" role="group" aria-label=${`${path} from ${found.least} to ${found.most}`}>
      ${found.bars.map(
        ({term, n, from, to}) => html`<button key=${term} class="quiet" title=${`${from} to ${to}: ${format.count(n)}`} aria-label=${`${format.count(n)} from ${from} to ${to}`} onClick=${() => onAdd(term)}>
          <span style=${{height: `${n ? Math.max(4, (100 * n) / most) : 0}%`}}></span>
        </button>`,
      )}
    </div>
    <div class="edges faint"><span>${format.shortNumber(found.least)}</span><span>mean ${format.shortNumber(found.mean)}</span><span>${format.shortNumber(found.most)}</span></div>`;
}

function Facet({name, path, isNumber, filter, isOpen, onAdd}) {
  const [open, setOpen] = useState(isOpen);
  const [found, setFound] = useState(undefined);
  useEffect(() => setFound(undefined), [name, path]);
  useEvery(
    EVERY_MS,
    async () => {
      if (!open) return;
      // A filter that is wrong is shown at its box; what was counted before it stays.
      const of = isNumber ? rangeOf : valuesOf;
      setFound(await of(name, path, filter).catch((error) => (error.status < 500 && error.status ? found : Promise.reject(error))));
    },
    [name, path, filter, open],
  );
  return html`<details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary class="code">${format.heading(path)}</summary>
    ${open && found !== undefined && (isNumber ? html`<${Range} path=${path} found=${found} onAdd=${onAdd} />` : html`<${Values} path=${path} found=${found} onAdd=${onAdd} />`)}
  </details>`;
}

// `fields` as [path, whether it is a number], without the key.
// `filter` is the last one that the server took; null: none yet.
export function Facets({name, fields, filter, records, onFilter}) {
  const [isWanted, setWanted] = useState(false);
  const add = (term) => onFilter(joined(filter, term));
  if (!fields.length || filter === null) return null;
  const isHeavy = records > RECORDS_AT_ONCE && !isWanted;
  return html`<aside class="facets panel padded" aria-label="Facets">
    <${Updates} name=${name} />
    <h2>Facets</h2>
    ${isHeavy
      ? html`<button onClick=${() => setWanted(true)}>Count ${format.count(records)} records</button>`
      : fields.map(([path, isNumber], place) => html`<${Facet} key=${path} name=${name} path=${path} isNumber=${isNumber} filter=${filter} isOpen=${place < OPEN_AT_FIRST} onAdd=${add} />`)}
  </aside>`;
}
