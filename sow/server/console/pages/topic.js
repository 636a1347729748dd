// One topic, live. The grid shows a window over its records in the chosen order, subscribes only to the
// rows in view, and scrolls by replacing the subscription. Filter, order and columns are in the
// address. The selected record is shown beside the grid.

import {attempt, html, problem, useEffect, useEvery, useMemo, useRef, useSignal, useState} from "../parts.js";
import {setParams, linkTo} from "../address.js";
import {read, sow, state, topicPath} from "../server.js";
import {follow} from "../following.js";
import {CopyAs} from "../copy_as.js";
import {ExpressionBox, FILTER, ORDER, ofFilter, ofOrder} from "../expression_box.js";
import {Grid} from "../grid.js";
import {Ladder, sizePath} from "../ladder.js";
import {TopicMap, coordinates} from "../map.js";
import {Window} from "../window.js";
import * as format from "../format.js";

// The most records that the server keeps in order for a live window (docs/queries.md).
const WINDOW_MAX = 2000;
const MARGIN = 20;
const COLUMNS_MAX = 60;
// The first records show which fields there are.
const LEARNED_FROM = 100;
// Records may leave many times a second; a screen reader announces it no more often than this.
const SPOKEN_EACH_MS = 10_000;

// The order after a click on a column header: ascending, descending, none.
function turned(order, path) {
  if (order === path) return `${path} DESC`;
  return order === `${path} DESC` ? "" : path;
}

function useTopic(name) {
  const [topic, setTopic] = useState(null);
  const before = useRef(null);
  useEvery(
    1000,
    async () => {
      const found = await read(topicPath(name));
      const now = performance.now();
      const taken = found.updates_in ?? found.updates;
      if (before.current && before.current.name === name) {
        found.per_s = ((taken - before.current.taken) * 1000) / (now - before.current.at);
      }
      before.current = {name, taken, at: now};
      setTopic(found);
    },
    [name],
  );
  return topic;
}

export function Topic({name, params}) {
  const {filter = "", order = "", columns: wanted = "", key = "", as = "", as_of: asOf = "", user = ""} = params;
  const topic = useTopic(name);
  const model = useMemo(() => ({window: new Window(), skip: 0, touch() {}}), [name]);
  const [fields, setFields] = useState([]);
  const [matches, setMatches] = useState(null);
  const [wrong, setWrong] = useState(null);
  const [paused, setPaused] = useState(false);
  const [figures, setFigures] = useState({});
  const feed = useRef(null);
  const range = useRef({skip: 0, top: 60});

  // The number of matches; this also checks filter and order before they are used.
  const count = async () => {
    const options = {top_n: 0, ...(filter && {filter}), ...(order && {order_by: order})};
    const {matches: found} = await (await sow()).query(name, options);
    setMatches(found);
  };
  // A topic that was removed meanwhile may come back, and is not an error of the filter.
  const counted = (error) => error.reason !== "invalid topic" && setWrong(error);
  // After a reconnect it is counted at once: much may have changed, or the server is another one.
  const isConnected = useSignal(state) === "connected";
  useEvery(2000, () => (wrong || paused || !isConnected ? null : count().catch(counted)), [name, filter, order, wrong, paused, isConnected]);

  useEffect(() => {
    model.window.clear();
    model.skip = range.current.skip = 0;
    setMatches(null);
    setWrong(null);
    if (paused || as) return undefined;
    let over = false;
    const options = () => ({
      filter: filter || undefined,
      order_by: order || undefined,
      skip_n: range.current.skip,
      top_n: range.current.top,
      snapshot: true,
      live: true,
      positions: true,
    });
    const begin = async () => {
      try {
        await count();
      } catch (error) {
        if (!over) setWrong(error);
        return;
      }
      if (over) return;
      const take = (message, held) => {
        model.skip = held.skip_n;
        model.window.take(message, performance.now());
        if (message.record && message.command !== "oof") learn(message.record);
        model.touch();
      };
      const failed = (error) => over || setWrong(error);
      feed.current = follow(name, options, take, failed);
    };
    begin();
    return () => {
      over = true;
      feed.current?.close();
      feed.current = null;
    };
  }, [name, filter, order, paused, as, model]);

  // Errors that belong to no box are shown at the foot of the page.
  useEffect(() => {
    if (wrong && !ofFilter(wrong) && !ofOrder(wrong)) problem.value = wrong;
  }, [wrong]);

  // Fields in the order in which they are first seen.
  const known = useRef(new Set());
  useEffect(() => {
    known.current = new Set();
    setFields([]);
  }, [name]);
  const learn = (document) => {
    const size = known.current.size;
    for (const path of format.paths(document)) {
      if (known.current.size < COLUMNS_MAX) known.current.add(path);
    }
    if (known.current.size > size) setFields([...known.current]);
  };

  // A map or a ladder has its own subscription; if it is opened without the grid, whose records show
  // which fields there are, some records are read.
  useEvery(
    2000,
    async () => {
      if (!as || fields.length || wrong) return;
      const some = await read(topicPath(name, "/records"), {filter, top_n: LEARNED_FROM});
      for (const one of some) learn(one);
    },
    [name, filter, as, fields.length, wrong],
  );

  // The rows in view; the window is moved when they come near its edge.
  const onView = (from, to) => {
    const now = range.current;
    const top = Math.min(WINDOW_MAX, Math.max(40, to - from + 2 * MARGIN));
    const isInside = from >= now.skip && to <= now.skip + now.top && now.top <= top + 40;
    if (isInside) return;
    const skip = Math.max(0, Math.min(from - MARGIN, WINDOW_MAX - top));
    if (skip === now.skip && top === now.top) return;
    range.current = {skip, top};
    feed.current?.replace();
  };

  // Figures of the view, updated twice a second, as people read them.
  useEffect(() => {
    let before = {updates: 0, at: performance.now()};
    let spoken = {departed: 0, at: -SPOKEN_EACH_MS, text: ""};
    const timer = setInterval(() => {
      const {window} = model;
      const now = performance.now();
      const departed = window.departed - (window.departed < spoken.departed ? 0 : spoken.departed);
      if (departed && now - spoken.at >= SPOKEN_EACH_MS) {
        const text = `${departed} left, the last one: ${window.left.reason}`;
        spoken = {departed: window.departed, at: now, text};
      }
      setFigures({
        per_s: ((window.updates - before.updates) * 1000) / (now - before.at),
        updates: window.updates,
        left: window.left,
        spoken: spoken.text,
        rows: window.rows.length,
      });
      before = {updates: window.updates, at: now};
    }, 500);
    return () => clearInterval(timer);
  }, [model]);

  const keys = (topic?.keys ?? []).map(format.canonical);
  const all = [...keys.filter((path) => fields.includes(path)), ...fields.filter((path) => !keys.includes(path))];
  const columns = wanted ? format.listed(wanted) : all;
  const total = wrong ? 0 : Math.min(matches ?? 0, WINDOW_MAX);
  const places = useMemo(() => coordinates(fields), [fields]);
  const size = sizePath(fields, keys);
  const chosen = key ? model.window.rows.find((row) => row.key === key) : null;
  return html`<${Heading} topic=${topic} name=${name} />
    <div class="bar">
      <${ExpressionBox} ...${FILTER} topic=${name} value=${filter} wrong=${ofFilter(wrong)} fields=${all} onSet=${(text) => setParams({filter: text, key: ""})} />
      <${ExpressionBox} ...${ORDER} topic=${name} value=${order} wrong=${ofOrder(wrong)} fields=${all} onSet=${(text) => setParams({order: text})} />
      <${Columns} all=${all} shown=${columns} onSet=${(list) => setParams({columns: list.join(",")})} />
      <${Views} as=${as} places=${places} size=${size} />
      <button aria-pressed=${String(paused)} onClick=${() => setPaused(!paused)}>${paused ? "Resume" : "Pause"}</button>
      <${CopyAs} topic=${name} params=${{filter, order, columns: wanted, top: WINDOW_MAX}} />
    </div>
    <div class="split">
      ${as === "map" && !places && html`<div class="grid"><div class="empty">No record says where it is.</div></div>`}
      ${as === "map" && places && html`<${TopicMap} name=${name} filter=${filter} paths=${places} chosen=${key} onChoose=${(record) => setParams({key: record ?? ""})} />`}
      ${as === "ladder" && topic && html`<${Ladder} name=${name} keys=${keys} size=${size ?? "/qty"} filter=${filter} />`}
      ${!as &&
      html`<${Grid}
        label=${`Records of ${name}`}
        model=${model}
        columns=${columns}
        headings=${(path) => format.heading(path) + (order === path ? " ▲" : order === `${path} DESC` ? " ▼" : "")}
        total=${total}
        order=${order}
        chosen=${key}
        onView=${onView}
        onOrder=${(path) => path !== format.WHOLE && setParams({order: turned(order, path)})}
        onChoose=${(record) => setParams({key: record ?? ""})}
        empty=${matches === 0 && !figures.rows ? (filter ? "No record matches." : "There are no records yet.") : ""}
      />`}
      ${key && html`<${Record} name=${name} record=${key} row=${chosen} asOf=${asOf} user=${user} isSeries=${Boolean(topic?.series)} onClose=${() => setParams({key: ""})} />`}
    </div>
    <${Status} matches=${matches} figures=${figures} wrong=${wrong} paused=${paused} as=${as} />`;
}

// The views of a topic: all as a table, some as a map or as a ladder.
function Views({as, places, size}) {
  const ways = [["", "Table"]];
  if (places || as === "map") ways.push(["map", "Map"]);
  if (size || as === "ladder") ways.push(["ladder", "Ladder"]);
  if (ways.length < 2) return null;
  return html`<span role="group" aria-label="View">
    ${ways.map(([way, text]) => html`<button key=${text} aria-pressed=${String(as === way)} onClick=${() => setParams({as: way})}>${text}</button>`)}
  </span>`;
}

function Heading({topic, name}) {
  return html`<div class="bar">
    <h1>${name}</h1>
    ${topic &&
    html`<span class="kind">${topic.kind}</span>
      <span class="dim">
        ${topic.underlying && html`of <a href=${linkTo("topic", topic.underlying)}>${topic.underlying}</a>, `}
        ${topic.interval_ms ? `at most one update a record in ${format.duration(topic.interval_ms)}, ` : ""}
        key ${(topic.keys || []).join(" ") || "given"}, ${format.count(topic.records)} records${topic.per_s === undefined ? "" : html`, <b>${format.rate(topic.per_s)}</b> updates/s`}
        ${topic.conflation_ratio && topic.updates_out ? html`, conflated <b>${format.ratio(topic.conflation_ratio)}</b>` : ""}
      </span>`}
    <span class="right">
      <a href=${linkTo("slider", name)}>Slider</a>${" · "}<a href=${linkTo("explain", name)}>Explain</a>
    </span>
  </div>`;
}

function Columns({all, shown, onSet}) {
  const set = (path, isOn) => {
    const next = all.filter((one) => (one === path ? isOn : shown.includes(one)));
    onSet(next.length === all.length ? [] : next);
  };
  return html`<details class="menu">
    <summary>Columns${shown.length < all.length ? ` ${shown.length}/${all.length}` : ""}</summary>
    <div>
      ${all.map(
        (path) => html`<label key=${path} class="code">
          <input type="checkbox" checked=${shown.includes(path)} onChange=${(event) => set(path, event.target.checked)} />
          ${path || format.heading(path)}
        </label>`,
      )}
    </div>
  </details>`;
}

function Record({name, record, row, asOf, user, isSeries, onClose}) {
  const [stored, setStored] = useState(null);
  useEffect(() => {
    setStored(null);
    // The server decodes the fields of a record that is text or bytes here.
    if (!row || !format.isDocument(row.document)) attempt(async () => setStored(await read(topicPath(name, `/records/${encodeURIComponent(record)}`))));
  }, [name, record, Boolean(row)]);
  const document = row && format.isDocument(row.document) ? row.document : stored;
  return html`<aside class="record panel padded" aria-label="The record">
    <div class="bar">
      <h2>Record</h2>
      <a class="right" href=${linkTo("slider", name, {key: record})}>Slider</a>
      <button class="quiet" aria-label="Close" onClick=${onClose}>×</button>
    </div>
    <div class="faint code">${record}</div>
    <pre class="document">${document ? format.json(document, 2) : ""}</pre>
    ${isSeries && html`<${Events} name=${name} record=${record} />`}
    <${Why} name=${name} record=${record} asOf=${asOf} user=${user} />
  </aside>`;
}

// The newest events of a record of a series: the first number in them as a line, by time, and the newest.
const EVENTS_SHOWN = 200;

function Events({name, record}) {
  const [events, setEvents] = useState([]);
  const path = topicPath(name, `/records/${encodeURIComponent(record)}/events`);
  const learn = () => read(path, {limit: EVENTS_SHOWN}).then(setEvents, () => setEvents([]));
  useEvery(2000, learn, [path]);
  const newest = events.at(-1);
  if (!newest) return null;
  const numbers = format.isDocument(newest.d) ? Object.entries(newest.d).filter(([, value]) => typeof value === "number") : [];
  const field = (numbers.find(([name]) => events.some(({d}) => d[name] !== newest.d[name])) ?? numbers[0])?.[0];
  return html`<h2>Events</h2>
    ${field !== undefined && html`<${EventLine} events=${events} field=${field} />`}
    <div class="dim">
      ${format.count(events.length)} ${field !== undefined && html`of <span class="code">${field}</span>`}, the newest
      ${newest.author && html` by <b>${newest.author}</b>`} at <span class="code">${newest.ts}</span>
    </div>`;
}

function EventLine({events, field}) {
  const points = events.filter(({d}) => typeof d[field] === "number").map(({ts, d}) => [Date.parse(ts), d[field]]);
  const [times, values] = [points.map(([at]) => at), points.map(([, value]) => value)];
  const [start, low] = [Math.min(...times), Math.min(...values)];
  const [span, height] = [Math.max(...times) - start || 1, Math.max(...values) - low || 1];
  const place = ([at, value]) => `${((at - start) / span) * 96} ${17 - ((value - low) / height) * 16}`;
  return html`<svg class="spark" viewBox="0 0 96 18" preserveAspectRatio="none" role="img" aria-label=${`${field} of its events`}>
    <path d=${`M${points.map(place).join("L")}`} />
  </svg>`;
}

// The followers that get the record, and how often; and those whose filter it does not match.
const NAMED_MAX = 5;

function recipients({followers}) {
  const named = (some) => some.slice(0, NAMED_MAX).join(", ") + (some.length > NAMED_MAX ? ` and ${some.length - NAMED_MAX} more` : "");
  const pace = ({auto, interval_ms}) => (auto ? "as fast as it reads" : interval_ms ? `once in ${format.duration(interval_ms)} at most` : "at once");
  const client = (one) => one.client || one.session;
  const yes = followers.filter((one) => one.told).map((one) => `${client(one)} (${pace(one)})`);
  const no = followers.filter((one) => !one.told).map(client);
  return [
    ...(yes.length ? [`sent to ${named(yes)}`] : []),
    ...(no.length ? [`not sent to ${named(no)}: it does not match the filter`] : []),
  ];
}

// Why the record is as it is: which of its updates became one, and what is pending. With a moment of
// the past: what a subscriber had been sent then, perhaps with the rights of a user, which stays as it is and is read once.
const NOT_AGAIN_MS = 24 * 3_600_000;

function Why({name, record, asOf, user}) {
  const [why, setWhy] = useState([]);
  const path = topicPath(name, `/records/${encodeURIComponent(record)}/why`);
  // A record that was removed has no explanation.
  const learn = () =>
    read(path, asOf ? {as_of: asOf, ...(user && {user})} : {}).then(
      (found) => setWhy([...found.why, ...recipients(found)]),
      (error) => setWhy(asOf ? [error.message] : []),
    );
  useEvery(asOf ? NOT_AGAIN_MS : 2000, learn, [path, asOf, user]);
  if (!why.length) return null;
  return html`<h2>Why${asOf && `, as of ${asOf}`}${asOf && user && ` for ${user}`}</h2>
    <ul class="why dim">
      ${why.map((sentence, place) => html`<li key=${place}>${sentence}</li>`)}
    </ul>`;
}

function Status({matches, figures, wrong, paused, as}) {
  const left = figures.left;
  return html`<div class="status">
    ${matches !== null && html`<span id="matches"><b>${format.count(matches)}</b> match</span>`}
    ${matches > WINDOW_MAX && as !== "ladder" && html`<span>the first <b>${format.count(WINDOW_MAX)}</b> in this order are live: a filter gets to the others</span>`}
    <span id="rate" data-updates=${figures.updates}>${paused ? "paused" : wrong || as ? "" : html`<b>${format.rate(figures.per_s ?? 0)}</b> updates/s in view`}</span>
    <span id="left" aria-hidden="true">
      ${left && html`left: <b>${left.reason}</b> <span class="code">${format.first(left.document)}</span>`}
    </span>
    <span class="hidden" role="status" id="spoken">${figures.spoken}</span>
  </div>`;
}
