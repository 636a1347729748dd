// One record beside the grid: what it is, its updates in the last two minutes, why it is sent as it is,
// and what may be done with it. A change is made only of the state that was edited (If-Match): if that
// has changed, both are shown. What the user has no right to is not offered.

import {attempt, confirmed, html, useEffect, useEscape, useEvery, useRef, useState} from "./parts.js";
import {linkTo} from "./address.js";
import {call, read, saveText, topicPath} from "./server.js";
import {parseExact} from "../sow.js";
import {Updates} from "./spark.js";
import * as format from "./format.js";

export function Record({name, record, row, keys, asOf, user, isSeries, isJson, may, onClose}) {
  const [stored, setStored] = useState(null);
  useEffect(() => {
    setStored(null);
    // The server decodes the fields of a record that is text or bytes here.
    if (!row || !format.isDocument(row.document)) attempt(async () => setStored(await read(topicPath(name, `/records/${encodeURIComponent(record)}`))));
  }, [name, record, Boolean(row)]);
  const document = row && format.isDocument(row.document) ? row.document : stored;
  const path = topicPath(name, `/records/${encodeURIComponent(record)}`);
  const [editing, setEditing] = useState(null);
  useEscape(onClose);
  const edit = () =>
    attempt(async () => {
      const answer = await call(path);
      setEditing({tag: answer.headers.get("ETag"), text: pretty(await answer.text())});
    });
  const remove = () =>
    attempt(async () => {
      if (!(await confirmed(`Delete ${record} of ${name}? Subscribers get an oof.`, "Delete"))) return;
      await call(path, {}, {method: "DELETE"});
      onClose();
    });
  const isPast = asOf !== "";
  return html`<aside class="record panel padded" aria-label="The record">
    <div class="bar">
      <h2>Record</h2>
      <a class="right" href=${linkTo("slider", name, {key: record})}>Conflation</a>
      <button class="quiet" aria-label="Close" onClick=${onClose}>×</button>
    </div>
    ${document && keys.length > 0 && html`<div><b>${keys.map((path) => format.cell(format.at(document, path))).join(" ")}</b></div>`}
    <div class="faint code">${record}</div>
    ${editing
      ? html`<${Editor} name=${name} path=${path} begun=${editing} onEnd=${() => setEditing(null)} />`
      : html`<pre class="document">${document ? format.visibleJson(document) : ""}</pre>
          <div class="bar">
            ${!isPast && may.includes("write") && isJson && document && html`<button onClick=${edit}>Edit</button>`}
            ${!isPast && may.includes("delete") && html`<button class="danger" onClick=${remove}>Delete</button>`}
            ${document && html`<button onClick=${() => saveText(`${name}-${record}.json`.replaceAll("/", "_"), format.json(document, 2))}>Export</button>`}
          </div>`}
    ${!isPast && html`<${Updates} name=${name} record=${record} />`}
    ${isSeries && html`<${Events} name=${name} record=${record} />`}
    <${Why} name=${name} record=${record} asOf=${asOf} user=${user} />
  </aside>`;
}

const pretty = (text) => format.json(parseExact(text), 2);

// A document as text, to be sent: a new record, or another state of the one that `begun` has the tag of.
export function Editor({name, path, begun, onEnd}) {
  const [text, setText] = useState(begun.text);
  const [tag, setTag] = useState(begun.tag);
  const [now, setNow] = useState(null);
  const [wrong, setWrong] = useState("");
  const box = useRef(null);
  useEffect(() => box.current.focus(), []);
  useEscape(onEnd);
  // Another state than the one that was edited: both are shown, and what is sent next replaces this one.
  const compare = async () => {
    try {
      const answer = await call(path);
      setNow(pretty(await answer.text()));
      setTag(answer.headers.get("ETag"));
      setWrong("It has changed since you began. Below is what it is now; saving again replaces that.");
    } catch (error) {
      if (error.status !== 404) throw error;
      setNow("");
      setTag(null);
      setWrong("It has been deleted since you began. Saving again makes it again.");
    }
  };
  const send = async (event) => {
    event.preventDefault();
    setWrong("");
    try {
      const headers = {"Content-Type": "application/json", ...(path && (tag ? {"If-Match": tag} : {"If-None-Match": "*"}))};
      await call(path ?? topicPath(name, "/records"), {}, {method: path ? "PUT" : "POST", body: text, headers});
      onEnd();
    } catch (error) {
      if (error.status === 412) await compare().catch((other) => setWrong(other.message));
      else setWrong(error.message);
    }
  };
  return html`<form class="editor" onSubmit=${send}>
    <label class="hidden" for="document">${path ? "The record as JSON" : "The message as JSON"}</label>
    <textarea ref=${box} id="document" rows=${Math.min(18, text.split("\n").length + 2)} spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
    ${wrong && html`<div class="bad" role="alert" id="editor-error">${wrong}</div>`}
    ${now !== null &&
    html`<h2>Now</h2>
      <pre class="document" id="now">${now}</pre>
      <button type="button" onClick=${() => setText(now)}>Take this</button>`}
    <div class="bar">
      <button class="first">${path ? "Save" : "Publish"}</button>
      <button type="button" onClick=${onEnd}>Cancel</button>
    </div>
  </form>`;
}

// A new message, in the place of a record.
export function Publish({name, keys, onClose}) {
  const begin = Object.fromEntries(keys.filter((path) => !path.slice(1).includes("/")).map((path) => [format.heading(path), ""]));
  return html`<aside class="record panel padded" aria-label="Publish">
    <div class="bar">
      <h2>Publish to ${name}</h2>
      <button class="quiet right" aria-label="Close" onClick=${onClose}>×</button>
    </div>
    <${Editor} name=${name} begun=${{text: format.json(begin, 2), tag: null}} onEnd=${onClose} />
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
