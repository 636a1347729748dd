// The choice of a topic, on pages about one topic: a list of topics to type into. A page that can show
// any topic starts with the busiest.

import {html, useEffect, useState} from "./parts.js";
import {linkTo} from "./address.js";
import {read} from "./server.js";

const LISTED_MAX = 500;

// The topic with the most updates since the start of the server, except the server's own; "" if there
// are none. Counts are hidden from users with a row policy: they get the first topic.
export function busiest(topics) {
  const published = topics.filter((one) => one.kind === "topic" && one.updates !== 0 && !one.name.startsWith("/sow/"));
  const most = published.reduce((best, one) => (!best || one.updates > best.updates ? one : best), null);
  return most?.name ?? "";
}

export function TopicChoice({page, name, params}) {
  const [names, setNames] = useState([]);
  useEffect(() => {
    read("v1/topics").then(
      (found) => setNames(found.filter((one) => one.kind !== "pattern").map((one) => one.name)),
      () => setNames([]),
    );
  }, []);
  return html`<label class="field">
    topic
    <input
      list="topic-names"
      value=${name}
      size="16"
      onChange=${(event) => {
        if (event.target.value) location.hash = linkTo(page, event.target.value, params);
      }}
    />
    <datalist id="topic-names">
      ${names.slice(0, LISTED_MAX).map((one) => html`<option key=${one} value=${one} />`)}
    </datalist>
  </label>`;
}
