// Nodes: the servers of this log, each below the one that it follows or is chained to, with how far it
// is; of a shared log also the last fail-over, and why. One server alone needs no table.

import {html, useSignal, signal, useEvery} from "../parts.js";
import {read} from "../server.js";
import * as format from "../format.js";

const EVERY_MS = 2000;

const nodes = signal([]);
const failover = signal(null);

async function refresh() {
  nodes.value = tree((await read("v1/status")).nodes || []);
  if (nodes.value.length < 2) return;
  // Only for who may administer the server.
  failover.value = (await read("v1/log/status").catch(() => ({}))).failover ?? null;
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
  const last = useSignal(failover);
  if (found.length < 2) return null;
  return html`<section class="panel scrolls" aria-label="Nodes">
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
    ${last && html`<p class="padded" id="failover">Last fail-over: ${last.after} leads since ${last.at}, as ${last.why}.</p>`}
  </section>`;
}
