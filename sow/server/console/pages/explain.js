// The plan of a query: each term of the filter with the index that serves it and the rows left after
// it, the number of records scanned, and advice.

import {html, problem, useEffect, useState} from "../parts.js";
import {setParams} from "../address.js";
import {read, topicPath} from "../server.js";
import {ExpressionBox, FILTER, ORDER, ofFilter, ofOrder} from "../expression_box.js";
import {Absent, isAbsent} from "../states.js";
import {Head, useBusiest, useTopic} from "../tabs.js";
import * as format from "../format.js";

export function Explain({name, params}) {
  const [plan, setPlan] = useState(null);
  const [wrong, setWrong] = useState(null);
  const {filter = "", order = ""} = params;
  const [topic, absent] = useTopic(name);
  useBusiest("explain", name, params);
  useEffect(() => {
    let over = false;
    setWrong(null);
    setPlan(null);
    if (name) {
      const query = {filter, order_by: order, explain: true};
      read(topicPath(name, "/records"), query).then(
        (found) => over || setPlan(found),
        (error) => {
          if (over) return;
          setWrong(error);
          if (!ofFilter(error) && !ofOrder(error) && !isAbsent(error)) problem.value = error;
        },
      );
    }
    return () => (over = true);
  }, [name, filter, order]);
  return html`<${Head} page="explain" name=${name} params=${params} topic=${topic} />
    <${Absent} name=${name} wrong=${absent} />
    ${name &&
    !absent &&
    html`<div class="bar">
      <${ExpressionBox} ...${FILTER} topic=${name} value=${filter} wrong=${ofFilter(wrong)} onSet=${(text) => setParams({filter: text})} />
      <${ExpressionBox} ...${ORDER} topic=${name} value=${order} wrong=${ofOrder(wrong)} onSet=${(text) => setParams({order: text})} />
    </div>`}
    ${plan && !absent && html`<${Plan} plan=${plan} />`}`;
}

function Plan({plan}) {
  return html`<div class="figures">
      <div class="figure accent">
        <div class="what">records scanned</div>
        <div class="value" id="rows-touched">${format.count(plan.rows_touched)}</div>
      </div>
      <div class="figure">
        <div class="what">terms</div>
        <div class="value">${plan.terms.length}</div>
      </div>
    </div>
    <div class="panel scrolls" role="group" aria-label="Terms" tabindex="0">
      <table class="plain" id="plan">
        <caption class="hidden">Terms of the filter, in the order in which they are used</caption>
        <thead>
          <tr><th scope="col">term</th><th scope="col">index</th><th scope="col" class="number">rows left</th></tr>
        </thead>
        <tbody>
          ${plan.terms.map(
            (term, place) => html`<tr key=${place}>
              <td class="code">${term.expression}</td>
              <td class=${term.index === "scan" ? "bad" : "good"}>${term.index}</td>
              <td class="number">${format.count(term.rows)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
      ${!plan.terms.length && html`<p class="padded dim">Without a filter every record is scanned.</p>`}
    </div>
    <ul class="why dim" id="plan-why">${plan.why.map((text) => html`<li key=${text}>${text}</li>`)}</ul>
    ${plan.advice
      ? html`<p class="panel padded" id="advice"><b>Advice.</b> ${plan.advice}</p>`
      : html`<p class="dim" id="advice">Nothing would make this faster.</p>`}`;
}
