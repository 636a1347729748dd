// What a page says where there is nothing to show, with what to do next: a topic that is not there or
// may not be seen, and what a user has no right to; or what is on its way.

import {html} from "./parts.js";
import {linkTo} from "./address.js";

export function Forbidden({what, verb}) {
  return html`<div class="panel padded" role="note" id="forbidden">
    <p>You may not see ${what}.</p>
    <p class="dim">An administrator can allow it: <span class="code">${`<Allow><${verb}/></Allow>`}</span> in a Role of yours, then a reload.</p>
  </div>`;
}

export const Loading = ({title}) => html`<div class="bar">
  <h1>${title}</h1>
  <span class="dim">Loading …</span>
</div>`;

export const isAbsent = (error) => [403, 404].includes(error?.status) || ["invalid topic", "not entitled"].includes(error?.reason);

export function Absent({name, wrong}) {
  if (!isAbsent(wrong)) return null;
  if (wrong.status === 403 || wrong.reason === "not entitled") return html`<${Forbidden} what=${name} verb="Read" />`;
  return html`<div class="panel padded" role="note" id="absent">
    <p>${wrong.detail || `There is no topic ${name} that you may see.`}</p>
    <p class="dim">It may be called otherwise, or be new: a topic of a pattern begins with its first publish. <a href=${linkTo("topics")}>All topics</a></p>
  </div>`;
}
