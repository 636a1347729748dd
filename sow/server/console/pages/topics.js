// All topics at a glance: whether the server is well, updates in and out, and what conflation saves.
// Rates are differences of the server's counters between two answers; lines begin with the two minutes
// that the server has kept. Topics of a pattern are folded under it, since there may be
// very many; while none is unfolded they are not requested, and the server sends their totals.

import {html, useSignal, signal, useEvery} from "../parts.js";
import {linkTo} from "../address.js";
import {health, read, topicPath} from "../server.js";
import {Head, sorted} from "../sorting.js";
import {Spark} from "../spark.js";
import {Loading} from "../states.js";
import * as format from "../format.js";

const EVERY_MS = 1000;
const KEPT = 120;
const BEGUN_AT_ONCE = 30; // of topics in view: a request each
const SHOWN_MAX = 500; // of topics, and of those of a pattern: ten thousand rows would take seconds to draw
const LATELY_MS = 600_000;
const SOON_S = 0.5; // rates over less time are noise

const topics = signal(null);
const unfolded = signal(new Set());
const wanted = signal("");
let before = {at: 0, counts: new Map()};
const histories = new Map();
const state = signal(null);

// Whether the server is well, who is connected, who is behind, and which sessions the server has closed lately.
async function look() {
  const [here, sessions, closed] = await Promise.all([health(), ...[{}, {closed: true}].map((which) => read("v1/sessions", which).catch(() => null))]);
  const behind = sessions?.filter((one) => one.lag_ms > 1000).length;
  const ended = closed?.filter((one) => one.reason !== "disconnected" && one.closed_ms < LATELY_MS).length;
  state.value = {...here, sessions: sessions?.length, behind, ended};
}

function troubles({behind, ended}) {
  const found = [behind && `${behind} behind by more than 1 s`, ended && `${ended} closed in ten minutes`].filter(Boolean);
  return html`<div class=${found.length ? "more bad" : "more"}>${found.join(", ") || "none is behind"}</div>`;
}

// The past of topics without one, so that rates are there at once; patterns, and what may not be read,
// begin with nothing.
async function beginHistories(found) {
  const first = found.filter((one) => one.kind !== "pattern" && one.updates != null && !histories.has(one.name));
  await Promise.all(
    first.slice(0, BEGUN_AT_ONCE).map(async ({name}) => {
      histories.set(name, []);
      const past = await read(topicPath(name, "/rates")).catch(() => null);
      if (past) histories.get(name)?.unshift(...past.in.map((taken, at) => [taken, past.out[at]]));
    }),
  );
  if (!first.length || topics.peek() !== found) return;
  topics.value = found.map((one) => ({...one, ...latest(histories.get(one.name))}));
}

// What is shown of a history: its line and its newest rates.
function latest(history) {
  const [in_per_s, out_per_s] = history?.at(-1) ?? [];
  return {history, in_per_s, out_per_s};
}

async function refresh(members) {
  const found = await read("v1/topics", {members});
  const now = performance.now();
  const seconds = (now - before.at) / 1000;
  const counts = new Map();
  for (const topic of found) {
    const taken = topic.updates_in ?? topic.updates;
    const given = topic.updates_out ?? topic.updates;
    // The server sends no counts of a pattern with hidden members.
    if (taken == null || given == null) continue;
    const known = before.counts.get(topic.name);
    counts.set(topic.name, [taken, given]);
    Object.assign(topic, latest(histories.get(topic.name)));
    if (!known || seconds > 30) continue;
    const history = histories.get(topic.name) || [];
    if (seconds >= SOON_S) {
      history.push([taken - known[0], given - known[1]].map((count) => Math.max(0, count) / seconds));
      if (history.length > KEPT) history.splice(0, history.length - KEPT);
      histories.set(topic.name, history);
    }
    Object.assign(topic, latest(history));
  }
  for (const name of histories.keys()) if (!counts.has(name)) histories.delete(name);
  if (seconds >= SOON_S) before = {at: now, counts};
  topics.value = found;
  beginHistories(found);
}

// What a column is sorted by; else topics stand in the order of the configuration.
const SORTS = {
  topic: (one) => one.name.toLowerCase(),
  kind: (one) => one.kind,
  type: (one) => one.message_type,
  interval: (one) => one.interval_ms ?? 0,
  records: (one) => one.records,
  "in/s": (one) => one.in_per_s ?? 0,
  "out/s": (one) => one.out_per_s ?? 0,
  ratio: (one) => (one.updates_out ? one.conflation_ratio : 0),
  pending: (one) => one.pending ?? 0,
  bytes: (one) => one.bytes ?? 0,
  followers: (one) => one.subscriptions ?? 0,
};

function Health({now, count, per_s}) {
  const records = (topics.peek() || []).reduce((sum, one) => sum + (one.of_pattern ? 0 : one.records), 0);
  const figure = (what, value, more = "") => html`<div class="figure"><div class="what">${what}</div><div class="value">${value}</div><div class="more">${more}</div></div>`;
  return html`<section class="figures" id="health" aria-label="Health">
    <div class="figure wide">
      <div class="what">health</div>
      <div class="value ${now ? (now.isGood ? "good" : "bad") : ""}">${now ? (now.isGood ? "ok" : "not ready") : "…"}</div>
      <div class="more wraps">${now && now.text !== "ok" ? now.text.replace(/^ok; /, "") : "takes messages"}</div>
    </div>
    ${figure("updates a second", format.rate(per_s), "published")}
    ${figure("topics", format.count(count))}
    ${figure("records", format.count(records))}
    ${now?.sessions !== undefined && html`<a class="figure" href=${linkTo("sessions", "", {sort: now.behind ? "-lag" : ""})}><div class="what">sessions</div><div class="value">${format.count(now.sessions)}</div>${troubles(now)}</a>`}
  </section>`;
}

// The rows of the table: members of a pattern below it, while it is unfolded.
function arranged(found, open, text) {
  const members = new Map();
  const patterns = new Set(found.filter((one) => one.kind === "pattern").map((one) => one.name));
  for (const one of found) {
    if (patterns.has(one.of_pattern)) {
      if (!members.has(one.of_pattern)) members.set(one.of_pattern, []);
      members.get(one.of_pattern).push(one);
    }
  }
  const matches = (one) => one.name.toLowerCase().includes(text.toLowerCase());
  const rows = [];
  let shown = 0;
  for (const one of found) {
    if (patterns.has(one.of_pattern)) continue;
    const inside = (members.get(one.name) || []).filter((member) => !text || matches(member));
    if (text && !matches(one) && !inside.length) continue;
    shown += 1;
    if (shown > SHOWN_MAX) continue;
    rows.push({topic: one, depth: 0});
    if (open.has(one.name) || (text && inside.length)) {
      for (const member of inside.slice(0, SHOWN_MAX)) rows.push({topic: member, depth: 1});
      if (inside.length > SHOWN_MAX) rows.push({more: inside.length - SHOWN_MAX, depth: 1});
    }
  }
  if (shown > SHOWN_MAX) rows.push({more: shown - SHOWN_MAX, depth: 0});
  return rows;
}

// The number of topics, and the updates per second published to them.
function summed(found) {
  const patterns = new Set(found.filter((one) => one.kind === "pattern").map((one) => one.name));
  const top = found.filter((one) => !patterns.has(one.of_pattern));
  const published = top.filter((one) => one.kind === "topic" || (one.kind === "pattern" && one.updates_in === undefined));
  return {
    count: top.reduce((sum, one) => sum + (one.kind === "pattern" ? one.topics : 1), 0),
    per_s: published.reduce((sum, one) => sum + (one.in_per_s || 0), 0),
  };
}

function Row({topic, depth}) {
  const isPattern = topic.kind === "pattern";
  const isOpen = unfolded.peek().has(topic.name);
  const fold = () => {
    const next = new Set(unfolded.peek());
    if (!next.delete(topic.name)) next.add(topic.name);
    unfolded.value = next;
  };
  const conflates = topic.updates_in !== undefined;
  return html`<tr class=${isPattern ? "folded" : ""}>
    <td class=${depth ? "indented" : ""}>
      ${isPattern &&
      html`<button class="quiet fold" aria-expanded=${String(isOpen)} aria-label=${`Topics of ${topic.name}`} onClick=${fold}>
        ${isOpen ? "▾" : "▸"}
      </button>`}
      ${isPattern
        ? html`<span>${topic.name}</span> <span class="faint">${format.count(topic.topics)} topics</span>`
        : html`<a href=${linkTo("topic", topic.name)}>${topic.name}</a>`}
      ${topic.stopped && html` <span class="bad" title=${topic.stopped}>stopped</span>`}
    </td>
    <td class="dim minor">${topic.kind}${topic.underlying ? html`<span class="faint"> of ${topic.underlying}</span>` : ""}</td>
    <td class="dim minor">${topic.message_type}</td>
    <td class="number minor">${topic.interval_ms ? format.duration(topic.interval_ms) : ""}</td>
    <td class="number">${format.count(topic.records)}</td>
    <td class="number">${format.rate(topic.in_per_s)}</td>
    <td class="number">${format.rate(topic.out_per_s)}</td>
    <td class="sparks minor"><${Spark} history=${topic.history} /></td>
    <td class="number">${conflates && topic.updates_out ? format.ratio(topic.conflation_ratio) : ""}</td>
    <td class="number">${conflates ? format.count(topic.pending) : ""}</td>
    <td class="number minor">${format.bytes(topic.bytes)}</td>
    <td class="number minor">${format.count(topic.subscriptions)}</td>
  </tr>`;
}

export function Topics({params}) {
  const {sort = ""} = params;
  const now = useSignal(state);
  useEvery(2 * EVERY_MS, look, []);
  const found = useSignal(topics);
  const open = useSignal(unfolded);
  const text = useSignal(wanted);
  const members = open.size > 0 || text !== "";
  useEvery(EVERY_MS, () => refresh(members), [members]);
  if (!found) return html`<${Loading} title="Topics" />`;
  const rows = arranged(sorted(found, SORTS, sort), open, text);
  const {count, per_s} = summed(found);
  return html`<div class="bar">
      <h1>Topics</h1>
      <span class="dim"><b>${format.count(count)}</b> topics, <b>${format.rate(per_s)}</b> updates/s published</span>
      <input
        class="right"
        type="search"
        placeholder="Find a topic"
        aria-label="Find a topic"
        value=${text}
        onInput=${(event) => (wanted.value = event.target.value)}
      />
    </div>
    <${Health} now=${now} count=${count} per_s=${per_s} />
    <div class="panel scrolls">
      <table class="plain" id="topics">
        <caption class="hidden">Topics, with rates and what conflation saves</caption>
        <thead>
          <tr>
            <${Head} column="topic" sort=${sort} text=${true} /><${Head} column="kind" sort=${sort} text=${true} minor=${true} />
            <${Head} column="type" sort=${sort} text=${true} minor=${true} /><${Head} column="interval" sort=${sort} minor=${true} />
            <${Head} column="records" sort=${sort} />
            <${Head} column="in/s" sort=${sort} /><${Head} column="out/s" sort=${sort} />
            <th scope="col" class="minor">two minutes</th>
            <${Head} column="ratio" sort=${sort} /><${Head} column="pending" sort=${sort} />
            <${Head} column="bytes" sort=${sort} minor=${true} /><${Head} column="followers" sort=${sort} minor=${true} />
          </tr>
        </thead>
        <tbody>
          ${rows.map((row, place) =>
            row.more
              ? html`<tr key=${`more ${place}`}><td class=${row.depth ? "indented dim" : "dim"} colspan="12">${format.count(row.more)} more: find them by name</td></tr>`
              : html`<${Row} key=${`${row.depth}${row.topic.name}`} ...${row} />`,
          )}
        </tbody>
      </table>
      ${!rows.length && html`<p class="padded dim">${
        text
          ? "No topic has that in its name."
          : html`There are no topics yet, or none that you may see. Add a <span class="code">${"<Topic>"}</span> to config.xml and reload, or publish to a topic of a Pattern: <span class="code">sow publish TOPIC</span>.`
      }</p>`}
    </div>`;
}
