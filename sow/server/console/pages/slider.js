// The slider: the updates of a topic, and those received at a chosen interval, from none to ten
// seconds. It is one subscription without a snapshot, which is replaced when the slider moves; updates
// in are counted by the server, updates out here. One record is drawn as two lines: its values as
// published and as received.

import {html, problem, useEffect, useEvery, useMemo, useRef, useState} from "../parts.js";
import {setParams} from "../address.js";
import {read, topicPath, CLIENT} from "../server.js";
import {follow} from "../following.js";
import {Chart, Series} from "../chart.js";
import {ExpressionBox, FILTER, ofFilter} from "../expression_box.js";
import {Absent, isAbsent} from "../states.js";
import {Head, useBusiest, useTopic} from "../tabs.js";
import * as format from "../format.js";

export const INTERVALS = ["none", "50ms", "100ms", "250ms", "500ms", "1s", "2s", "5s", "10s"];
const SPAN_S = 30;
const RATES_S = 120;
const EVERY_MS = 500;
// One message of so many is measured: encoding all would cost more than receiving them.
const MEASURED_EACH = 20;

// Counts since the page was opened, and those of the last look.
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

  // Rates since the last call; `taken` is the number of updates that the server received.
  rates(taken, sub) {
    const now = {at: performance.now(), out: this.out, taken, sub};
    const before = this.before;
    this.before = now;
    // Another subscription, or a restarted one, counts from zero.
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

// The filter that only this record matches, by its key; "" if a filter cannot express the key.
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

export function Slider({name, params}) {
  const {filter = "", interval = "1s", key = "", field = ""} = params;
  const [described, absent] = useTopic(name);
  useBusiest("slider", name, params);
  const [topic, setTopic] = useState(null);
  const [wrong, setWrong] = useState(null);
  const [figures, setFigures] = useState(null);
  const [state, setState] = useState(null);
  const [fields, setFields] = useState([]);
  const [record, setRecord] = useState(key);
  const series = useMemo(() => new Series(2, SPAN_S), [name, record, field]);
  const rates = useMemo(() => new Series(2, RATES_S), [name]);
  const tally = useMemo(() => new Tally(), [name, filter]);
  const now = useRef({});
  now.current = {interval, filter, record, field: field || fields[0], series};
  const feed = useRef(null);

  useEffect(() => {
    if (name && !absent) read(topicPath(name)).then(setTopic, setWrong);
  }, [name, absent]);
  useEffect(() => setRecord(key), [key, name]);

  useEffect(() => {
    if (wrong && !ofFilter(wrong) && !isAbsent(wrong)) problem.value = wrong;
  }, [wrong]);

  // The chart begins with what the server has kept; of a filter there is nothing to begin with.
  useEffect(() => {
    if (!name || !topic || filter) return;
    read(topicPath(name, "/rates")).then((found) => rates.begin(performance.now() / 1000, found), () => {});
  }, [name, topic?.name, filter, rates]);

  // The updates at this interval.
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

  // The published updates of one record.
  useEffect(() => {
    if (!name || !topic || !record) return undefined;
    const take = ({command, key: of, record: document}) => {
      if (!document || command === "oof" || of !== record) return;
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
      // Without an interval all updates are sent.
      const found = sub ? tally.rates(sub.updates_in, sub.s) : tally.rates(tally.out, "none");
      setFigures((before) => smoothed(before, found) ?? before);
      setState(sub ?? null);
      if (found) {
        rates.put(performance.now() / 1000, 0, found.in_per_s);
        rates.put(performance.now() / 1000, 1, found.out_per_s);
      }
    },
    [name, tally],
  );

  const set = (place) => {
    setFigures(null);
    setParams({interval: INTERVALS[place]});
  };
  const shown = field || fields[0] || "";
  return html`<${Head} page="slider" name=${name} params=${params} topic=${described} />
    <${Absent} name=${name} wrong=${absent} />
    ${name &&
    !absent &&
    html`<div class="bar"><${ExpressionBox} ...${FILTER} topic=${name} value=${filter} wrong=${ofFilter(wrong)} fields=${fields} onSet=${(text) => setParams({filter: text})} /></div>
          <${Stops} interval=${interval} onSet=${set} />
          <${Figures} figures=${figures} state=${state} interval=${interval} />
          <section class="panel padded">
            <div class="bar">
              <h2>One record</h2>
              ${record ? html`<span class="code faint">${record}</span>` : html`<span class="dim">the first one that changes is drawn here</span>`}
              <label class="field right">
                field
                <select value=${shown} onChange=${(event) => setParams({field: event.target.value})}>
                  ${fields.map((path) => html`<option key=${path} value=${path}>${path}</option>`)}
                </select>
              </label>
              <div class="legend"><span><i></i>published</span><span><i class="out"></i>received</span></div>
            </div>
            <${Chart} key=${`${record} ${shown}`} series=${series} stepped=${true} labels=${["published", "received"]} description=${`${shown} of one record, as published and as received`} />
          </section>
          <section class="panel padded">
            <div class="bar">
              <h2>Updates a second</h2>
              <div class="legend right"><span><i></i>in</span><span><i class="out"></i>out</span></div>
            </div>
            <${Chart} small=${true} series=${rates} labels=${["in", "out"]} description="Updates in and out a second over the last two minutes" />
          </section>`}`;
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
