// Sessions: the queue and lag of each, what was conflated and dropped; and closed ones, with the
// reason. Queue and lag are lines over the last minutes. Conflation of a session can be switched, and
// a session can be closed.

import {html, useSignal, useState, signal, useEvery, attempt, confirmed} from "../parts.js";
import {linkTo} from "../address.js";
import {call, read} from "../server.js";
import {Head, sorted} from "../sorting.js";
import {Loading} from "../states.js";
import * as format from "../format.js";
import {Nodes} from "./nodes.js";

const EVERY_MS = 1000;
const KEPT = 120;
const SHOWN_MAX = 500; // thousands of rows would take seconds to draw

const sessions = signal(null);
const gone = signal([]);
const chosen = signal(null);
const queues = new Map();

async function refresh(id) {
  const [found, closed] = await Promise.all([
    read("v1/sessions"),
    read("v1/sessions", {closed: true}),
  ]);
  for (const one of found) {
    const past = queues.get(one.id) || [];
    past.push([one.queue_messages, one.lag_ms ?? 0]);
    if (past.length > KEPT) past.shift();
    queues.set(one.id, past);
  }
  const known = new Set(found.map((one) => one.id));
  for (const name of queues.keys()) if (!known.has(name)) queues.delete(name);
  sessions.value = found;
  gone.value = closed;
  chosen.value = known.has(id) || closed.some((one) => one.id === id) ? await storyOf(id, known.has(id)) : null;
}

// The subscriptions of an open session, and the server's explanation of what it does not get.
async function storyOf(id, isThere) {
  const path = `v1/sessions/${encodeURIComponent(id)}`;
  const [story, one] = await Promise.all([read(`${path}/why`), isThere ? read(path) : {}]);
  return {...story, ...one};
}

function Queue({past}) {
  if (!past || past.length < 2) return null;
  // Each is scaled to its own maximum, but not to a few messages or milliseconds.
  const line = (which, little) => {
    const most = Math.max(little, ...past.map((one) => one[which]));
    const x = (place) => ((96 * place) / (KEPT - 1)).toFixed(1);
    return past.map((one, place) => `${place ? "L" : "M"}${x(place)} ${(17 - (15 * one[which]) / most).toFixed(1)}`).join("");
  };
  const [queue, lag] = past.at(-1);
  const label = `queue (grey) ${format.count(queue)}, lag ${format.duration(lag)}`;
  return html`<svg class="spark" viewBox="0 0 96 18" preserveAspectRatio="none" role="img" aria-label=${label}>
    <title>${label}</title>
    <path d=${line(0, 10)} /><path class="out" d=${line(1, 100)} />
  </svg>`;
}

// What a column is sorted by; else sessions stand in the order in which they came.
const SORTS = {
  client: (one) => (one.client || one.id).toLowerCase(),
  user: (one) => one.user ?? "",
  address: (one) => one.address,
  since: (one) => one.since,
  follows: (one) => one.subscriptions,
  queue: (one) => one.queue_messages,
  bytes: (one) => one.queue_bytes,
  lag: (one) => one.lag_ms ?? 0,
  folded: (one) => one.conflated_messages,
  dropped: (one) => one.dropped_messages,
};

// Whether a session is one that is searched for: by its client, its user or its address.
const matches = (one, text) => [one.client, one.id, one.user, one.address].some((part) => part?.toLowerCase().includes(text.toLowerCase()));

function policy(one) {
  return one.conflated ? "conflates when full" : "conflates nothing";
}

function Session({one, isChosen, sort}) {
  const path = `v1/sessions/${encodeURIComponent(one.id)}`;
  const send = (method, body) =>
    attempt(async () => {
      await call(path, {}, {method, body});
      await refresh(isChosen ? one.id : "");
    });
  const disconnect = async () => {
    const who = `${one.client || one.id}${one.user ? ` of ${one.user}` : ""} from ${one.address}`;
    const text = `Disconnect ${who}, connected for ${format.duration(one.connected_ms)}? Its queue is lost; most clients connect again.`;
    if (await confirmed(text, "Disconnect")) await send("DELETE");
  };
  return html`<tr aria-selected=${isChosen}>
    <td><a href=${linkTo("sessions", "", {sort, session: isChosen ? "" : one.id})}>${one.client || one.id}</a></td>
    <td class="faint minor">${one.client ? one.id : ""}</td>
    <td>${one.user}</td>
    <td class="minor">${one.address}</td>
    <td class=${one.connected ? "" : "bad"}>${one.connected ? "connected" : "away"}</td>
    <td class="number minor" title=${`for ${format.duration(one.connected_ms)}`}><time datetime=${one.since}>${format.moment(one.since)}</time></td>
    <td class="number">${format.count(one.subscriptions)}</td>
    <td class="number">${format.count(one.queue_messages)}</td>
    <td class="sparks minor"><${Queue} past=${queues.get(one.id)} /></td>
    <td class="number minor">${format.bytes(one.queue_bytes)}</td>
    <td class="number ${one.lag_ms > 1000 ? "bad" : ""}">${format.duration(one.lag_ms)}</td>
    <td class="number">${format.count(one.conflated_messages)}</td>
    <td class="number ${one.dropped_messages ? "bad" : ""}">${format.count(one.dropped_messages)}</td>
    <td>
      <button
        aria-pressed=${String(one.conflated)}
        title=${policy(one)}
        onClick=${() => send("POST", JSON.stringify({conflated: !one.conflated}))}
      >
        conflate ${one.conflated ? "on" : "off"}
      </button>
      <button class="danger" onClick=${disconnect}>disconnect</button>
    </td>
  </tr>`;
}

function Following({one}) {
  if (!one) return null;
  return html`<section class="panel padded" aria-label="Why">
      <h2>${one.client || one.id}</h2>
      ${one.address && html`<p id="who">${one.user || "without a log-on"}, from ${one.address}, since <time datetime=${one.since}>${format.moment(one.since)}</time></p>`}
      <ul class="why dim">${one.why.map((text) => html`<li key=${text}>${text}</li>`)}</ul>
      ${one.instead.map((text) => html`<p key=${text}>${text}</p>`)}
    </section>
    ${one.following && html`<${Follows} one=${one} />`}`;
}

function Follows({one}) {
  return html`<section class="panel scrolls" tabindex="0" aria-label="What the session follows">
    <table class="plain">
      <caption class="padded"><h2>What it follows</h2></caption>
      <thead>
        <tr>
          <th scope="col">topic</th><th scope="col">filter</th><th scope="col" class="number">interval</th>
          <th scope="col" class="number">in</th><th scope="col" class="number">out</th>
          <th scope="col" class="number">folded</th><th scope="col" class="number">pending</th>
          <th scope="col" class="number">oldest</th>
        </tr>
      </thead>
      <tbody>
        ${one.following.map(
          (sub) => html`<tr key=${sub.s}>
            <td>${sub.topic}${sub.window && html` <span class="kind">window</span>`}</td>
            <td class="code">${sub.filter}</td>
            <td class="number">${sub.auto ? "auto" : format.duration(sub.interval_ms) || "none"}</td>
            <td class="number">${format.count(sub.updates_in)}</td>
            <td class="number">${format.count(sub.updates_out)}</td>
            <td class="number">${sub.updates_in === undefined ? "" : format.count(sub.updates_in - sub.updates_out - sub.pending)}</td>
            <td class="number">${format.count(sub.pending)}</td>
            <td class="number">${format.duration(sub.oldest_pending_ms)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
    ${!one.following.length && html`<p class="padded dim">Nothing at the moment.</p>`}
  </section>`;
}

function Gone({closed}) {
  if (!closed.length) return null;
  return html`<section class="panel scrolls" tabindex="0" aria-label="Sessions that are gone">
    <table class="plain" id="gone">
      <caption class="padded"><h2>Gone</h2></caption>
      <thead>
        <tr>
          <th scope="col">client</th><th scope="col">user</th><th scope="col">address</th><th scope="col">why</th><th scope="col" class="number">ago</th>
          <th scope="col" class="number">lasted</th><th scope="col" class="number">folded</th>
          <th scope="col" class="number">dropped</th>
        </tr>
      </thead>
      <tbody>
        ${closed.map(
          (one) => html`<tr key=${one.id}>
            <td><a href=${linkTo("sessions", "", {session: one.id})}>${one.client || one.id}</a></td>
            <td>${one.user}</td>
            <td>${one.address}</td>
            <td class=${one.reason === "disconnected" ? "dim" : "bad"}>${one.reason}</td>
            <td class="number">${format.duration(one.closed_ms)}</td>
            <td class="number">${format.duration(one.connected_ms)}</td>
            <td class="number">${format.count(one.conflated_messages)}</td>
            <td class="number">${format.count(one.dropped_messages)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}

export function Sessions({params}) {
  useEvery(EVERY_MS, () => refresh(params.session), [params.session]);
  const found = useSignal(sessions);
  const closed = useSignal(gone);
  const {sort = ""} = params;
  const [text, setText] = useState("");
  const one = useSignal(chosen);
  if (!found) return html`<${Loading} title="Sessions" />`;
  const behind = found.filter((session) => session.lag_ms > 1000).length;
  const wanted = sorted(found.filter((session) => matches(session, text)), SORTS, sort);
  return html`<div class="bar">
      <h1>Sessions</h1>
      <span class="dim">${format.count(found.length)} connected${behind ? html`, <span class="bad">${behind} behind by more than 1 s</span>` : ""}</span>
      <input class="right" type="search" placeholder="Find a session" aria-label="Find a session" value=${text} onInput=${(event) => setText(event.target.value)} />
    </div>
    <div class="panel scrolls">
      <table class="plain" id="sessions">
        <caption class="hidden">Sessions and their queues</caption>
        <thead>
          <tr>
            <${Head} column="client" sort=${sort} text=${true} /><th scope="col" class="minor">id</th>
            <${Head} column="user" sort=${sort} text=${true} /><${Head} column="address" sort=${sort} text=${true} minor=${true} />
            <th scope="col">state</th><${Head} column="since" sort=${sort} minor=${true} />
            <${Head} column="follows" sort=${sort} /><${Head} column="queue" sort=${sort} />
            <th scope="col" class="minor">queue and lag</th>
            <${Head} column="bytes" sort=${sort} minor=${true} /><${Head} column="lag" sort=${sort} />
            <${Head} column="folded" sort=${sort} /><${Head} column="dropped" sort=${sort} />
            <th scope="col"><span class="hidden">What can be done</span></th>
          </tr>
        </thead>
        <tbody>
          ${wanted.slice(0, SHOWN_MAX).map((session) => html`<${Session} key=${session.id} one=${session} sort=${sort} isChosen=${session.id === params.session} />`)}
        </tbody>
      </table>
      ${!found.length && html`<p class="padded dim">Nobody is connected. <span class="code">sow watch TOPIC</span> is one way to be.</p>`}
      ${found.length > 0 && !wanted.length && html`<p class="padded dim">No client, user or address has that in its name.</p>`}
      ${wanted.length > SHOWN_MAX && html`<p class="padded dim">${format.count(wanted.length - SHOWN_MAX)} more: find them by name, or sort.</p>`}
    </div>
    <${Nodes} />
    <${Following} one=${one} />
    <${Gone} closed=${closed} />`;
}
