// The slider: how many updates there are of a topic, and how many one is told at an interval of
// one's own, from none to ten seconds. It is one subscription without a snapshot, which is replaced
// when the slider moves; what goes in is counted by the server, what comes out here. One record is
// drawn as two lines, its values as they were published and as they were told.

import {html, problem, useEffect, useEvery, useMemo, useRef, useState} from "../parts.js";
import {address, ask, goTo, linkTo} from "../address.js";
import {read, topicPath, CLIENT} from "../server.js";
import {follow} from "../following.js";
import {Chart, Series} from "../chart.js";
import {ExpressionBox, FILTER, ofFilter} from "../expression_box.js";
import {TopicChoice, busiest} from "../topic_choice.js";
import * as format from "../format.js";

export const INTERVALS = ["none", "50ms", "100ms", "250ms", "500ms", "1s", "2s", "5s", "10s"];
const SPAN_S = 30;
const EVERY_MS = 500;
// Of so many messages one is measured: to write all of them out would cost more than to take them.
const MEASURED_EACH = 20;

// What has come since the page began, and what was known of it before.
class Tally {
  constructor() {
    this.out = 0;
    this.measured = 0;
    this.bytes = 0;
    this.before = null;
  }

  take(message) {
    this.out += 1;
    if (this.out % MEASURED_EACH === 1) {
      this.measured += 1;
      this.bytes += format.json(message).length;
    }
  }

  // Figures of the time since this was asked before; `taken` is what the server has taken in.
  told(taken, sub) {
    const now = {at: performance.now(), out: this.out, taken, sub};
    const before = this.before;
    this.before = now;
    // Another subscription, or the same anew: it counts from nothing.
    if (!before || before.sub !== sub || taken < before.taken) return null;
    const seconds = (now.at - before.at) / 1000;
    const in_per_s = (now.taken - before.taken) / seconds;
    const out_per_s = (now.out - before.out) / seconds;
    return {in_per_s, out_per_s, bytes_per_s: (out_per_s * this.bytes) / (this.measured || 1)};
  }
}

function numericPaths(document, keys) {
  return format.paths(document).filter((path) => !keys.includes(path) && typeof format.at(document, path) === "number");
}

// The filter that one record passes alone, by its key; "" where it has none that a filter can name.
export function onlyThis(document, keys) {
  const terms = keys.map((path) => {
    const value = format.at(document, path);
    if (typeof value === "string") return `${path} = '${value.replace(/[\\']/g, "\\$&")}'`;
    return typeof value === "number" ? `${path} = ${value}` : null;
  });
  return terms.includes(null) ? "" : terms.join(" AND ");
}

// Smoothed over some seconds, since windows end together and a half second may have none.
function smoothed(before, now) {
  if (!before || !now) return now;
  const mixed = {...now};
  for (const name of ["in_per_s", "out_per_s", "bytes_per_s"]) mixed[name] = before[name] * 0.7 + now[name] * 0.3;
  return mixed;
}

export function Slider({name, asked}) {
  const {filter = "", interval = "1s", key = "", field = ""} = asked;
  const [topic, setTopic] = useState(null);
  const [wrong, setWrong] = useState(null);
  const [figures, setFigures] = useState(null);
  const [state, setState] = useState(null);
  const [fields, setFields] = useState([]);
  const [record, setRecord] = useState(key);
  const series = useMemo(() => new Series(2, SPAN_S), [name, record, field]);
  const rates = useMemo(() => new Series(2, 60), [name]);
  const tally = useMemo(() => new Tally(), [name, filter]);
  const now = useRef({});
  now.current = {interval, filter, record, field: field || fields[0], series};
  const feed = useRef(null);

  useEffect(() => {
    if (name) read(topicPath(name)).then(setTopic, setWrong);
  }, [name]);
  // Until there is a topic, since a server may be looked at before anything is published.
  useEvery(1000, async () => {
    if (name) return;
    const found = busiest(await read("v1/topics"));
    // Unless somebody has gone elsewhere meanwhile.
    const now = address.peek();
    if (found && now.page === "slider" && !now.name) goTo("slider", found, asked);
  }, [name]);
  useEffect(() => setRecord(key), [key, name]);

  useEffect(() => {
    if (wrong && !ofFilter(wrong)) problem.value = wrong;
  }, [wrong]);

  // What one is told at this interval.
  useEffect(() => {
    if (!name || !topic) return undefined;
    setWrong(null);
    const take = (message) => {
      const {current} = now;
      if (message.command !== "p") return;
      tally.take(message);
      if (!current.record) {
        const found = numericPaths(message.record, (topic.keys || []).map(format.canonical));
        if (!found.length) return;
        current.record = message.key;
        setRecord(message.key);
        setFields(found);
      } else if (message.key === current.record) {
        current.series.put(performance.now() / 1000, 1, format.at(message.record, current.field));
      }
    };
    const options = () => ({filter: now.current.filter || undefined, conflation: now.current.interval});
    feed.current = follow(name, options, take, setWrong);
    return () => {
      feed.current.close();
      feed.current = null;
    };
  }, [name, topic, filter]);
  useEffect(() => {
    feed.current?.replace();
  }, [interval]);

  // What is published of one record.
  useEffect(() => {
    if (!name || !topic || !record) return undefined;
    const take = ({command, key: told, record: document}) => {
      if (!document || command === "oof" || told !== record) return;
      const {current} = now;
      if (!current.field) setFields(numericPaths(document, (topic.keys || []).map(format.canonical)));
      const value = format.at(document, current.field);
      if (typeof value === "number") series.put(performance.now() / 1000, 0, value);
    };
    let one = null;
    let isOver = false;
    read(topicPath(name, `/records/${encodeURIComponent(record)}`)).then((document) => {
      const alone = onlyThis(document, (topic.keys || []).map(format.canonical));
      if (!isOver && alone) one = follow(name, () => ({filter: alone, snapshot: true}), take, setWrong);
    }, setWrong);
    return () => {
      isOver = true;
      one?.close();
    };
  }, [name, topic, record, series]);

  useEvery(
    EVERY_MS,
    async () => {
      if (!name) return;
      const sessions = await read("v1/sessions");
      const own = sessions.find((one) => one.client === CLIENT);
      const following = own ? (await read(`v1/sessions/${encodeURIComponent(own.id)}`)).following : [];
      const sub = following.find((one) => one.interval_ms !== null && !one.window);
      // Without an interval all that comes in goes out.
      const told = sub ? tally.told(sub.updates_in, sub.s) : tally.told(tally.out, "none");
      setFigures((before) => smoothed(before, told) ?? before);
      setState(sub ?? null);
      if (told) {
        rates.put(performance.now() / 1000, 0, told.in_per_s);
        rates.put(performance.now() / 1000, 1, told.out_per_s);
      }
    },
    [name, tally],
  );

  const set = (place) => {
    setFigures(null);
    ask({interval: INTERVALS[place]});
  };
  const shown = field || fields[0] || "";
  return html`<div class="bar">
      <h1>Slider</h1>
      <${TopicChoice} page="slider" name=${name} asked=${{interval}} />
      ${name && html`<a href=${linkTo("topic", name, {filter})}>Records</a>`}
      <${ExpressionBox} ...${FILTER} topic=${name} value=${filter} wrong=${ofFilter(wrong)} fields=${fields} onSet=${(text) => ask({filter: text})} />
    </div>
    ${name
      ? html`<${Stops} interval=${interval} onSet=${set} />
          <${Figures} figures=${figures} state=${state} interval=${interval} />
          <section class="panel padded">
            <div class="bar">
              <h2>One record</h2>
              <span class="code faint">${record}</span>
              <label class="field right">
                field
                <select value=${shown} onChange=${(event) => ask({field: event.target.value})}>
                  ${fields.map((path) => html`<option key=${path} value=${path}>${path}</option>`)}
                </select>
              </label>
              <div class="legend"><span><i></i>published</span><span><i class="out"></i>told</span></div>
            </div>
            <${Chart} key=${`${record} ${shown}`} series=${series} stepped=${true} labels=${["published", "told"]} told=${`${shown} of one record, as published and as told`} />
          </section>
          <section class="panel padded">
            <div class="bar">
              <h2>Updates a second</h2>
              <div class="legend right"><span><i></i>in</span><span><i class="out"></i>out</span></div>
            </div>
            <${Chart} small=${true} series=${rates} labels=${["in", "out"]} told="Updates in and out a second over the last minute" />
          </section>`
      : html`<p class="dim">Nothing has been published yet. Choose a topic, or wait for the first update: the busiest one is shown then.</p>`}`;
}

function Stops({interval, onSet}) {
  const at = Math.max(0, INTERVALS.indexOf(interval));
  return html`<div class="panel padded slide">
    <label class="hidden" for="interval">Interval</label>
    <input
      id="interval"
      type="range"
      min="0"
      max=${INTERVALS.length - 1}
      value=${at}
      aria-valuetext=${INTERVALS[at]}
      onInput=${(event) => onSet(Number(event.target.value))}
    />
    <div class="ticks">
      ${INTERVALS.map(
        (text, place) => html`<button key=${text} tabindex="-1" aria-pressed=${String(place === at)} onClick=${() => onSet(place)}>${text}</button>`,
      )}
    </div>
  </div>`;
}

function Figures({figures, state, interval}) {
  const {in_per_s, out_per_s, bytes_per_s} = figures ?? {};
  const saved = in_per_s > 0 ? Math.max(0, 1 - out_per_s / in_per_s) : 0;
  const figure = (what, value, more = "", kind = "") => html`<div class="figure ${kind}">
    <div class="what">${what}</div>
    <div class="value" id=${what.replaceAll(" ", "-")}>${value || "–"}</div>
    <div class="more">${more || " "}</div>
  </div>`;
  return html`<div class="figures">
    ${figure("updates in", format.rate(in_per_s), "a second")}
    ${figure("updates out", format.rate(out_per_s), "a second", "accent")}
    ${figure("ratio", figures && out_per_s > 0 ? format.ratio(Math.max(1, in_per_s / out_per_s)) : "", figures ? `${Math.round(saved * 100)} % less` : "")}
    ${figure("bytes out", figures ? format.bytes(bytes_per_s) : "", "a second, about")}
    ${figure("oldest pending", interval === "none" ? "0 ms" : format.duration(state?.oldest_pending_ms), `of ${interval} at most`)}
    ${figure("pending", interval === "none" ? "0" : format.count(state?.pending), "records wait")}
  </div>`;
}
