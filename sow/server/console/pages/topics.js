// All topics at a glance: updates in and out, and what conflation saves. Rates are differences of the
// server's counters between two answers. Topics of a pattern are folded under it, since there may be
// very many; while none is unfolded they are not requested, and the server sends their totals.

import {html, useSignal, signal, useEvery} from "../parts.js";
import {linkTo} from "../address.js";
import {read} from "../server.js";
import * as format from "../format.js";

const EVERY_MS = 1000;
const KEPT = 60;
const SHOWN_MAX = 500; // of topics, and of those of a pattern: ten thousand rows would take seconds to draw
const SOON_S = 0.5; // rates over less time are noise

const topics = signal(null);
const unfolded = signal(new Set());
const wanted = signal("");
let before = {at: 0, counts: new Map()};
const histories = new Map();

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
    if (!known || seconds > 30) continue;
    const history = histories.get(topic.name) || [];
    if (seconds >= SOON_S) {
      history.push([taken - known[0], given - known[1]].map((count) => Math.max(0, count) / seconds));
      if (history.length > KEPT) history.shift();
      histories.set(topic.name, history);
    }
    [topic.in_per_s, topic.out_per_s] = history.at(-1) ?? [];
    topic.history = history;
  }
  for (const name of histories.keys()) if (!counts.has(name)) histories.delete(name);
  if (seconds >= SOON_S) before = {at: now, counts};
  topics.value = found;
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

function Spark({history}) {
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
    <td class="dim">${topic.kind}${topic.underlying ? html`<span class="faint minor"> of ${topic.underlying}</span>` : ""}</td>
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

export function Topics() {
  const found = useSignal(topics);
  const open = useSignal(unfolded);
  const text = useSignal(wanted);
  const members = open.size > 0 || text !== "";
  useEvery(EVERY_MS, () => refresh(members), [members]);
  if (!found) return html`<p class="dim">Loading the topics …</p>`;
  const rows = arranged(found, open, text);
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
    <div class="panel scrolls">
      <table class="plain" id="topics">
        <caption class="hidden">Topics, with rates and what conflation saves</caption>
        <thead>
          <tr>
            <th scope="col">topic</th>
            <th scope="col">kind</th>
            <th scope="col" class="minor">type</th>
            <th scope="col" class="number minor">interval</th>
            <th scope="col" class="number">records</th>
            <th scope="col" class="number">in/s</th>
            <th scope="col" class="number">out/s</th>
            <th scope="col" class="minor">last minute</th>
            <th scope="col" class="number">ratio</th>
            <th scope="col" class="number">pending</th>
            <th scope="col" class="number minor">bytes</th>
            <th scope="col" class="number minor">followers</th>
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
      ${!rows.length && html`<p class="padded dim">${text ? "No topic has that in its name." : "There are no topics yet."}</p>`}
    </div>`;
}
