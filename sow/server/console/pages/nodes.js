// Nodes: the servers of this log, each below the one that it follows or is chained to, with how far it
// is; of a shared log also who leads it, and the last fail-over with its reason. One server alone with a
// log of its own needs no table.

import {html, useSignal, signal, useEvery} from "../parts.js";
import {isAdmin, read} from "../server.js";
import * as format from "../format.js";

const EVERY_MS = 2000;

const nodes = signal([]);
const shared = signal(null);

async function refresh() {
  nodes.value = tree((await read("v1/status")).nodes || []);
  const found = isAdmin.peek() ? await read("v1/log/status") : {engine: "local"};
  shared.value = found.engine === "local" ? null : found;
}

// In the order of a tree, each with its depth. Who calls the primary by a name that is not known here
// stands below it, too; what is in a circle stands at the end.
export function tree(found) {
  const primary = found.find((one) => one.role === "primary")?.url ?? "";
  const urls = new Set(found.map((one) => one.url));
  const below = new Map();
  for (const one of found) {
    const above = urls.has(one.upstream) ? one.upstream : primary;
    const place = one.url === primary || one.url === above ? "" : above;
    below.set(place, [...(below.get(place) || []), one]);
  }
  const placed = [];
  const walk = (url, depth) => {
    const here = below.get(url) || [];
    below.delete(url);
    for (const one of here) {
      placed.push({...one, depth});
      walk(one.url, depth + 1);
    }
  };
  walk("", 0);
  return [...placed, ...[...below.values()].flat().map((one) => ({...one, depth: 0}))];
}

export function Nodes() {
  useEvery(EVERY_MS, refresh, []);
  const found = useSignal(nodes);
  const log = useSignal(shared);
  if (found.length < 2 && !log) return null;
  return html`<section class="panel scrolls" tabindex="0" aria-label="Nodes">
    <table class="plain" id="nodes">
      <caption class="padded"><h2>Nodes</h2></caption>
      <thead>
        <tr>
          <th scope="col">node</th><th scope="col">role</th><th scope="col" class="number">bookmark</th>
          <th scope="col" class="number">lag</th><th scope="col" class="number">sessions</th>
          <th scope="col" class="minor">state hash</th>
        </tr>
      </thead>
      <tbody>
        ${found.map(
          (one) => html`<tr key=${`${one.url} ${one.pid}`}>
            <td style=${{paddingLeft: `${16 + 16 * one.depth}px`}}>${one.url}</td>
            <td>${one.role}</td>
            <td class="number">${one.bookmark ?? ""}</td>
            <td class="number ${one.pid == null || one.lag_ms > 1000 ? "bad" : ""}">${one.pid == null ? "not heard" : format.duration(one.lag_ms)}</td>
            <td class="number">${format.count(one.sessions)}</td>
            <td class="code minor">${one.state_hash ?? ""}</td>
          </tr>`,
        )}
      </tbody>
    </table>
    ${log && html`<${SharedLog} log=${log} />`}
  </section>`;
}

function SharedLog({log}) {
  const {failover: last} = log;
  return html`<div class="padded" id="shared-log">
    <p>
      ${log.leader ? html`<b>${log.leader}</b> leads the shared log` : html`<span class="bad">Nobody leads the shared log</span>`} (${log.engine}, term ${log.term}).
      This node, ${log.node}, heard of it ${format.duration(log.silent_ms)} ago${log.stale ? html`: <span class="bad">too long, what it answers may be old</span>` : ""}.
    </p>
    <p id="failover">
      ${last ? html`Last fail-over: <b>${last.after}</b> leads since <time datetime=${last.at}>${format.moment(last.at)}</time> in place of ${last.before}, because ${last.why}.` : "No fail-over since this node started."}
    </p>
  </div>`;
}
