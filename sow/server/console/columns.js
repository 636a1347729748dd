// The columns of a topic's grid. Which are shown stands in the address, since it is part of the view;
// which are pinned to the left, how wide they are and to how many digits numbers are rounded is a matter
// of this screen, and kept in this browser, for each topic.

import {html, useState} from "./parts.js";
import * as format from "./format.js";

const WIDTH_MIN = 24; // a column that is narrower is not found again
const WIDTH_MAX = 2000;
const DIGITS_MAX = 15; // more than a number has

// Proxies may put several servers below one origin, each at a path of its own.
const keptAt = (topic) => `sow-columns ${location.pathname} ${topic}`;

// Others may keep anything there.
const valid = ({pin, width, digits}) => ({
  pin: pin === true,
  ...(width >= WIDTH_MIN && width <= WIDTH_MAX && {width}),
  ...(Number.isInteger(digits) && digits >= 0 && digits <= DIGITS_MAX && {digits}),
});

function kept(topic) {
  try {
    return new Map(JSON.parse(localStorage.getItem(keptAt(topic))).map(([path, one]) => [path, valid(one)]));
  } catch {
    return new Map();
  }
}

// {pin, width, digits} of columns by path, and what changes those of one.
export function useLayout(topic) {
  const [layout, setLayout] = useState(() => kept(topic));
  const set = (path, changes) =>
    setLayout((before) => {
      const next = new Map(before).set(path, valid({...before.get(path), ...changes}));
      try {
        localStorage.setItem(keptAt(topic), JSON.stringify([...next]));
      } catch {
        // Full or forbidden: it holds as long as the page.
      }
      return next;
    });
  return [layout, set];
}

// The columns with the pinned ones first, and how many of them are pinned: one at least is scrolled.
export function placed(columns, layout) {
  const isPinned = (path) => layout.get(path)?.pin === true;
  const first = columns.filter(isPinned);
  return [[...first, ...columns.filter((path) => !isPinned(path))], Math.max(0, Math.min(first.length, columns.length - 1))];
}

// A number, or nothing. What is typed stands until it is set, however often the page is drawn meanwhile.
function Figure({label, value = "", nothing, min, max, onSet}) {
  const [text, setText] = useState(null);
  const set = (event) => (setText(null), onSet(event.target.valueAsNumber));
  return html`<input type="number" aria-label=${label} placeholder=${nothing} min=${min} max=${max} value=${text ?? value} onInput=${(event) => setText(event.target.value)} onChange=${set} />`;
}

// `all` are columns to choose from, a part of the fields where records have very many.
export function Columns({all, isPart, shown, numbers, layout, onShow, onLayout}) {
  const [wanted, setWanted] = useState("");
  const found = all.filter((path) => format.heading(path).toLowerCase().includes(wanted.toLowerCase()));
  const show = (path, isOn) => {
    const next = all.filter((one) => (one === path ? isOn : shown.includes(one)));
    onShow(next.length === all.length && !isPart ? [] : next);
  };
  return html`<details class="menu">
    <summary>Columns${shown.length < all.length ? ` ${shown.length}/${all.length}` : ""}</summary>
    <div>
      <div class="bar">
        <input type="search" aria-label="Find a column" placeholder="Find a column" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />
        ${shown.length < all.length && html`<button class="right" onClick=${() => onShow([])}>Show all</button>`}
      </div>
      <table class="plain" id="columns">
        <thead>
          <tr><th scope="col">column</th><th scope="col">pin</th><th scope="col">width</th><th scope="col">digits</th></tr>
        </thead>
        <tbody>
          ${found.map((path) => {
            const {pin = false, width, digits} = layout.get(path) ?? {};
            const name = format.heading(path);
            return html`<tr key=${path}>
              <th scope="row"><label class="code"><input type="checkbox" checked=${shown.includes(path)} onChange=${(event) => show(path, event.target.checked)} /> ${name}</label></th>
              <td><input type="checkbox" aria-label=${`Pin ${name}`} checked=${pin} onChange=${(event) => onLayout(path, {pin: event.target.checked})} /></td>
              <td><${Figure} label=${`Width of ${name}`} value=${width} nothing="auto" min=${WIDTH_MIN} max=${WIDTH_MAX} onSet=${(next) => onLayout(path, {width: next})} /></td>
              <td>${numbers.has(path) && html`<${Figure} label=${`Digits of ${name}`} value=${digits} nothing="all" min="0" max=${DIGITS_MAX} onSet=${(next) => onLayout(path, {digits: next})} />`}</td>
            </tr>`;
          })}
        </tbody>
      </table>
      ${!found.length && html`<p class="dim">No column has that in its name.</p>`}
      ${!found.length && wanted.startsWith("/") && html`<button onClick=${() => onShow([...shown, format.canonical(wanted)])}>Show ${wanted}</button>`}
      ${isPart && html`<p class="dim">Records have more fields: find one by its path, such as /a/b.</p>`}
    </div>
  </details>`;
}
