// The choice of a topic, on pages that are about one: those that there are, in a list to type into.
// A page that has something to show at once of any topic takes the busiest by itself.

import {html, useEffect, useState} from "./parts.js";
import {linkTo} from "./address.js";
import {read} from "./server.js";

const LISTED_MAX = 500;

// The topic that most has been published to since the server began, but for the server's own; "" where
// nothing has been. How much it is, is not told to who sees some records alone: he is shown the first.
export function busiest(topics) {
  const published = topics.filter((one) => one.kind === "topic" && one.updates !== 0 && !one.name.startsWith("/sow/"));
  const most = published.reduce((best, one) => (!best || one.updates > best.updates ? one : best), null);
  return most?.name ?? "";
}

export function TopicChoice({page, name, asked}) {
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
        if (event.target.value) location.hash = linkTo(page, event.target.value, asked);
      }}
    />
    <datalist id="topic-names">
      ${names.slice(0, LISTED_MAX).map((one) => html`<option key=${one} value=${one} />`)}
    </datalist>
  </label>`;
}
