// The head of the four pages of a topic: what it is and what it does now, and the pages as tabs. Each is
// an address of its own, and the filter goes along. An address without a topic gets the busiest.

import {html, useEvery, useRef, useState} from "./parts.js";
import {address, goTo, linkTo} from "./address.js";
import {read, topicPath} from "./server.js";
import {isAbsent} from "./states.js";
import * as format from "./format.js";

const TABS = {topic: "Records", slider: "Conflation", explain: "Plan", definition: "Definition"};
const EVERY_MS = 1000;

// The topic as the server describes it now, with its updates a second; or the error that says that there
// is none for this user.
export function useTopic(name) {
  const [topic, setTopic] = useState(null);
  const [absent, setAbsent] = useState(null);
  const before = useRef(null);
  useEvery(
    EVERY_MS,
    async () => {
      if (!name) return;
      const found = await read(topicPath(name)).catch((error) => {
        if (!isAbsent(error)) throw error;
        setAbsent(error);
      });
      // What may not be seen any more does not stay.
      if (!found) return setTopic(null);
      setAbsent(null);
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
  return [topic, absent];
}

// The topic with the most updates since the start of the server, except the server's own; "" if there
// are none. Counts are hidden from users with a row policy: they get the first topic.
function busiest(topics) {
  const published = topics.filter((one) => one.kind === "topic" && one.updates !== 0 && !one.name.startsWith("/sow/"));
  const most = published.reduce((best, one) => (!best || one.updates > best.updates ? one : best), null);
  return most?.name ?? "";
}

// Goes on to the busiest topic, as soon as there is one, unless the user has gone elsewhere meanwhile.
export function useBusiest(page, name, params) {
  useEvery(
    EVERY_MS,
    async () => {
      if (name) return;
      const found = busiest(await read("v1/topics"));
      const now = address.peek();
      if (found && now.page === page && !now.name) goTo(page, found, params);
    },
    [name],
  );
}

export function Head({page, name, params = {}, topic}) {
  if (!name) return html`<h1>${TABS[page]}</h1><p class="dim">Nothing has been published yet. The busiest topic is shown here with its first update; <a href=${linkTo("topics")}>all topics</a></p>`;
  const {filter, order} = params;
  return html`<div class="bar">
      <h1>${name}</h1>
      ${topic &&
      html`<span class="kind">${topic.kind}</span>
        <span class="dim">
          ${topic.underlying && html`of <a href=${linkTo(page, topic.underlying)}>${topic.underlying}</a>, `}
          ${topic.interval_ms ? `at most one update a record in ${format.duration(topic.interval_ms)}, ` : ""}
          key ${(topic.keys || []).join(" ") || "given"}, ${format.count(topic.records)} records${topic.per_s === undefined ? "" : html`, <b>${format.rate(topic.per_s)}</b> updates/s`}
          ${topic.conflation_ratio && topic.updates_out ? html`, conflated <b>${format.ratio(topic.conflation_ratio)}</b>` : ""}
        </span>`}
    </div>
    <nav class="tabs" aria-label=${`Pages of ${name}`}>
      ${Object.entries(TABS).map(
        ([target, title]) => html`<a
          key=${target}
          href=${linkTo(target, name, {filter, order: target === "slider" ? "" : order})}
          aria-current=${target === page ? "page" : null}
          >${title}</a
        >`,
      )}
    </nav>`;
}
