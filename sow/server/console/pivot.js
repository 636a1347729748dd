// A pivot: the records in groups, by an aggregated query of two boxes, and that query as a View. The
// groups are live like any topic, so the grid shows them as it shows records.

import {Copy, html, useState} from "./parts.js";
import {ExpressionBox} from "./expression_box.js";
import {heading, listed} from "./format.js";

export const GROUPING = {label: "Grouping", placeholder: "Group by: /symbol", short: true};
export const PROJECTION = {label: "Projection", placeholder: "Show: /symbol, COUNT(1) AS /n, SUM(/qty) AS /qty"};

const xml = (text) => text.replace(/[&<>]/g, (one) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[one]);

// Fields of a projection: commas inside brackets of functions and of texts part none.
export function parted(text) {
  const found = [""];
  let depth = 0;
  let quote = "";
  for (const one of text) {
    if (quote) quote = one === quote ? "" : quote;
    else if (one === "'" || one === '"') quote = one;
    else if ("([".includes(one)) depth += 1;
    else if (")]".includes(one)) depth -= 1;
    if (one === "," && !depth && !quote) found.push("");
    else found[found.length - 1] += one;
  }
  return found.map((one) => one.trim()).filter(Boolean);
}

// What is shown where only a grouping was given.
export const projectionOf = (group, project) => project || [...listed(group), "COUNT(1) AS /count"].join(",");

const name = (topic, group) => `${topic}-by-${listed(group).map(heading).join("-").replaceAll("/", "-")}`;

// The element of the configuration that has these groups as a topic.
export function viewOf(topic, type, {group, project, filter}) {
  const fields = (texts) => texts.map((one) => `<Field>${xml(one)}</Field>`);
  return [
    "<View>",
    `  <Name>${xml(name(topic, group))}</Name>`,
    `  <MessageType>${xml(type)}</MessageType>`,
    `  <UnderlyingTopic>${xml(topic)}</UnderlyingTopic>`,
    "  <Projection>",
    ...fields(parted(projectionOf(group, project))).map((one) => `    ${one}`),
    "  </Projection>",
    `  <Grouping>${fields(parted(group)).join("")}</Grouping>`,
    ...(filter ? [`  <Filter>${xml(filter)}</Filter>`] : []),
    "</View>",
  ].join("\n");
}

export function Pivot({topic, type, group, project, filter, wrong, fields, onSet}) {
  const [isShown, setShown] = useState(false);
  const text = viewOf(topic, type, {group, project, filter});
  return html`<div class="bar" role="group" aria-label="Pivot">
      <${ExpressionBox} ...${GROUPING} topic=${topic} value=${group} fields=${fields} onSet=${(next) => onSet({group: next})} />
      <${ExpressionBox} ...${PROJECTION} topic=${topic} value=${project} fields=${fields} onSet=${(next) => onSet({project: next})} />
      ${group && html`<button aria-expanded=${String(isShown)} onClick=${() => setShown(!isShown)}>Make this a View</button>`}
      <button onClick=${() => onSet({group: "", project: "", pivot: ""})}>Close pivot</button>
    </div>
    ${wrong && html`<div class="bad" role="alert" id="pivot-error">${wrong.detail || wrong.message}</div>`}
    ${group &&
    isShown &&
    html`<section class="panel padded" aria-label="View">
      <div class="bar"><span class="dim">Add this to <span class="code">config.xml</span>, and reload:</span><${Copy} text=${text} /></div>
      <pre class="document" id="view-xml">${text}</pre>
    </section>`}`;
}
