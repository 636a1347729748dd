// The records of one topic, live, in groups (a pivot), or as of a moment. The grid shows a window over
// them in the chosen order, subscribes only to the rows in view, and scrolls by replacing the
// subscription. All that determines the view is in the address. Facets and the selected record stand
// beside the grid. A filter that is wrong leaves the rows that there are.

import {attempt, html, problem, useEffect, useEvery, useMemo, useRef, useSignal, useState} from "../parts.js";
import {setParams} from "../address.js";
import {call, read, save, sow, state, topicPath} from "../server.js";
import {parseExact} from "../../sow.js";
import {Columns, placed, useLayout} from "../columns.js";
import {follow} from "../following.js";
import {CopyAs} from "../copy_as.js";
import {ExpressionBox, FILTER, ORDER, ofFilter, ofOrder, ofPivot} from "../expression_box.js";
import {Facets} from "../facets.js";
import {Grid} from "../grid.js";
import {Ladder, sizePath} from "../ladder.js";
import {TopicMap, coordinates} from "../map.js";
import {Pivot, parted, projectionOf} from "../pivot.js";
import {Publish, Record} from "../record_pane.js";
import {Absent, Forbidden, isAbsent} from "../states.js";
import {Head, useTopic} from "../tabs.js";
import {TimeTravel} from "../time_travel.js";
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

export function Topic({name, params}) {
  const {filter = "", order = "", columns: wanted = "", key = "", as_of: asOf = "", user = ""} = params;
  const as = ["map", "ladder"].includes(params.as) ? params.as : "";
  const {group = "", project = "", pivot = ""} = params;
  const [topic, absent] = useTopic(name);
  const may = topic?.may ?? [];
  const [layout, setLayout] = useLayout(name);
  const [publishing, setPublishing] = useState(false);
  const [advice, setAdvice] = useState("");
  const [accepted, setAccepted] = useState(null);
  const model = useMemo(() => ({window: new Window(), skip: 0, touch() {}}), [name]);
  const [fields, setFields] = useState([]);
  const [matches, setMatches] = useState(null);
  const [wrong, setWrong] = useState(null);
  const [returns, setReturns] = useState(0);
  const [paused, setPaused] = useState(false);
  const [figures, setFigures] = useState({});
  const feed = useRef(null);
  const range = useRef({skip: 0, top: 60});

  // What is queried: the records, or groups of them.
  const wantedNow = {
    ...(filter && {filter}),
    ...(order && {order_by: order}),
    ...(group && {grouping: parted(group), projection: parted(projectionOf(group, project))}),
  };
  // The number of matches; this also checks filter and order before they are used.
  const count = async () => {
    const {matches: found, advice: said} = await (await sow()).query(name, {...wantedNow, top_n: 0});
    setMatches(found);
    setAdvice(said.join(" "));
  };
  // After a reconnect it is counted at once: much may have changed, or the server is another one.
  const isConnected = useSignal(state) === "connected";
  useEvery(2000, () => (wrong || paused || asOf || !isConnected ? null : count().catch(setWrong)), [name, filter, order, group, project, wrong, paused, asOf, isConnected]);

  const end = () => {
    feed.current?.close();
    feed.current = null;
  };
  const clear = () => {
    end();
    model.window.clear();
    model.skip = range.current.skip = 0;
    model.touch();
  };
  // As they were: read once, since that does not change.
  const remember = async () => {
    const {grouping, projection, ...others} = wantedNow;
    const query = {...others, grouping: grouping && `[${grouping.join(",")}]`, projection: projection && `[${projection.join(",")}]`, as_of: asOf, top_n: WINDOW_MAX, meta: true};
    const answer = await call(topicPath(name, "/records"), query);
    const found = parseExact(await answer.text());
    return {found, matches: Number(answer.headers.get("SOW-Matches") ?? found.length)};
  };
  useEffect(() => {
    setWrong(null);
    if (paused || as) {
      clear();
      return undefined;
    }
    let over = false;
    const options = () => ({
      ...wantedNow,
      skip_n: range.current.skip,
      top_n: range.current.top,
      snapshot: true,
      live: true,
      positions: true,
    });
    const take = (message, held) => {
      model.skip = held.skip_n;
      model.window.take(message, performance.now());
      if (message.record && message.command !== "oof") learn(message.record);
      model.touch();
    };
    const show = ({found, matches: all}) => {
      model.window.rows = found.map(({k, d}, at) => ({key: k ?? String(at), document: d, entered: 0}));
      for (const {d} of found.slice(0, LEARNED_FROM)) learn(d);
      setMatches(all);
      model.touch();
    };
    const begin = async () => {
      try {
        const past = asOf ? await remember() : await count();
        if (over) return;
        clear();
        forget();
        setAccepted(filter);
        if (asOf) show(past);
        else feed.current = follow(name, options, take, (error) => over || setWrong(error));
      } catch (error) {
        // What was there before stays, and stays live.
        if (!over) setWrong(error);
      }
    };
    begin();
    return () => (over = true);
  }, [name, filter, order, group, project, paused, as, asOf, returns, model]);
  useEffect(() => end, [model]);
  // A topic that was removed, or not to be read any more, may come back.
  useEffect(() => {
    if (isAbsent(wrong) && may.includes("read")) setReturns(returns + 1);
  }, [topic]);

  // Errors that belong to no box are shown at the foot of the page.
  useEffect(() => {
    if (wrong && !ofFilter(wrong) && !ofOrder(wrong) && !ofPivot(wrong) && !isAbsent(wrong)) problem.value = wrong;
  }, [wrong]);

  // Fields in the order in which they are first seen.
  const known = useRef(new Set());
  const numbers = useRef(new Set());
  // Groups have other fields than records, and these fields stand in another order.
  const shape = useRef("");
  const forget = () => {
    if (shape.current === `${group}\n${project}`) return;
    shape.current = `${group}\n${project}`;
    known.current = new Set();
    numbers.current = new Set();
    setFields([]);
  };
  const learn = (document) => {
    const size = known.current.size;
    if (size >= COLUMNS_MAX) return;
    for (const path of format.paths(document)) {
      if (known.current.size >= COLUMNS_MAX || known.current.has(path)) continue;
      known.current.add(path);
      if (format.isNumber(format.at(document, path))) numbers.current.add(path);
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
  const shown = wanted ? format.listed(wanted) : all;
  const [columns, pinned] = placed(shown, layout);
  const total = Math.min(matches ?? 0, WINDOW_MAX);
  const isJson = topic?.message_type === "json";
  const isPivot = pivot !== "" || group !== "";
  // What can be counted: fields that are no key, and no list.
  const facets = !topic || isPivot || asOf || as ? [] : all.filter((path) => path !== format.WHOLE && !keys.includes(path)).map((path) => [path, numbers.current.has(path)]);
  const places = useMemo(() => coordinates(fields), [fields]);
  const size = sizePath(fields, keys);
  // Who closes the record is where it was chosen.
  const closeRecord = () => {
    setParams({key: ""});
    document.querySelector("regular-table table")?.focus();
  };
  const chosen = key ? model.window.rows.find((row) => row.key === key) : null;
  if (absent || (isAbsent(wrong) && !topic)) {
    return html`<div class="bar"><h1>${name}</h1></div><${Absent} name=${name} wrong=${absent ?? wrong} />`;
  }
  const publish = may.includes("write") && isJson && html`<button onClick=${() => (setPublishing(true), setParams({key: ""}))}>Publish</button>`;
  const publishPane = publishing && !key && html`<${Publish} name=${name} keys=${keys} onClose=${() => setPublishing(false)} />`;
  if (topic && !may.includes("read")) {
    return html`<${Head} page="topic" name=${name} params=${params} topic=${topic} />
      <${Forbidden} what=${`the records of ${name}`} verb="Read" />
      <div class="bar">${publish}</div>
      ${publishPane}`;
  }
  return html`<${Head} page="topic" name=${name} params=${params} topic=${topic} />
    <div class="bar">
      <${ExpressionBox} ...${FILTER} topic=${name} value=${filter} wrong=${ofFilter(wrong)} fields=${all} onSet=${(text) => setParams({filter: text, key: ""})} />
      <${ExpressionBox} ...${ORDER} topic=${name} value=${order} wrong=${ofOrder(wrong)} fields=${all} onSet=${(text) => setParams({order: text})} />
      <${Columns} all=${[...new Set([...all, ...shown])]} isPart=${fields.length >= COLUMNS_MAX} shown=${shown} numbers=${numbers.current} layout=${layout} onShow=${(list) => setParams({columns: list.join(",")})} onLayout=${setLayout} />
      <${Views} as=${as} places=${places} size=${size} />
      ${!isPivot && html`<button onClick=${() => setParams({pivot: "1", key: ""})}>Pivot</button>`}
      ${publish}
      <button aria-pressed=${String(paused)} onClick=${() => setPaused(!paused)}>${paused ? "Resume" : "Pause"}</button>
      <${CopyAs} topic=${name} params=${{filter, order, columns: wanted, top: WINDOW_MAX}} />
      <${Export} name=${name} query=${{filter, order_by: order, select: wanted, as_of: asOf}} isPivot=${group !== ""} />
    </div>
    ${advice && !wrong && html`<p class="advice" role="status" id="advice">${advice}</p>`}
    ${isPivot && html`<${Pivot} topic=${name} type=${topic?.message_type ?? "json"} group=${group} project=${project} filter=${filter} wrong=${ofPivot(wrong)} fields=${all} onSet=${(changes) => setParams({...changes, key: "", order: ""})} />`}
    ${!as && html`<${TimeTravel} asOf=${asOf} onSet=${(moment) => setParams({as_of: moment})} />`}
    <div class="split">
      <${Facets} name=${name} fields=${facets} filter=${accepted} records=${topic?.records ?? 0} onFilter=${(text) => setParams({filter: text, key: ""})} />
      ${as === "map" && !places && html`<div class="grid"><div class="empty">No record says where it is.</div></div>`}
      ${as === "map" && places && html`<${TopicMap} name=${name} filter=${filter} paths=${places} chosen=${key} onChoose=${(record) => setParams({key: record ?? ""})} />`}
      ${as === "ladder" && topic && html`<${Ladder} name=${name} keys=${keys} size=${size ?? "/qty"} filter=${filter} />`}
      ${!as &&
      html`<${Grid}
        label=${`Records of ${name}`}
        model=${model}
        columns=${columns}
        pinned=${pinned}
        layout=${layout}
        onLayout=${setLayout}
        headings=${(path) => format.heading(path) + (order === path ? " ▲" : order === `${path} DESC` ? " ▼" : "")}
        total=${total}
        order=${order}
        chosen=${key}
        onView=${onView}
        onOrder=${(path) => path !== format.WHOLE && setParams({order: turned(order, path)})}
        onChoose=${(record) => setParams({key: record ?? ""})}
        empty=${matches === 0 && !figures.rows ? nothing({filter, asOf, name, topic}) : ""}
      />`}
      ${key && !group && html`<${Record} name=${name} record=${key} row=${chosen} keys=${keys} asOf=${asOf} user=${user} isSeries=${Boolean(topic?.series)} isJson=${isJson} may=${may} onClose=${closeRecord} />`}
      ${publishPane}
    </div>
    <${Status} matches=${matches} figures=${figures} wrong=${wrong} paused=${paused} as=${as} />`;
}

// What to do where nothing is shown.
function nothing({filter, asOf, name, topic}) {
  if (filter) return html`<div>No record matches. <button onClick=${() => setParams({filter: ""})}>Clear the filter</button></div>`;
  if (asOf) return "There were no records then.";
  if (topic && topic.kind !== "topic") return `There are no records yet. They come from ${topic.underlying ?? topic.underlyings?.join(", ") ?? "its topics"}.`;
  return `There are no records yet. Publish one here, or with: sow publish ${name}`;
}

// The records of the view as a file; all of them, not the first of the grid.
function Export({name, query, isPivot}) {
  if (isPivot) return null;
  const file = name.replaceAll("/", "_");
  const forms = {CSV: "csv", JSON: "json", "JSON lines": "ndjson", Arrow: "arrow"};
  const saved = (event, format) => {
    event.currentTarget.closest("details").open = false;
    attempt(() => save(`${file}.${format}`, topicPath(name, "/records"), {...query, format}));
  };
  return html`<details class="menu">
    <summary>Export</summary>
    <div>${Object.entries(forms).map(([title, format]) => html`<button key=${format} onClick=${(event) => saved(event, format)}>${title}</button>`)}</div>
  </details>`;
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
