// The choice of a topic, on pages that are about one: those that there are, in a list to type into.

import {html, useEffect, useState} from "./parts.js";
import {linkTo} from "./address.js";
import {read} from "./server.js";

const LISTED_MAX = 500;

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
