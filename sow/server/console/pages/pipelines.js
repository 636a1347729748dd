// The Spark pipelines of the configuration: what each reads and writes, its state, and its restart.

import {html, useSignal, signal, useEvery, attempt} from "../parts.js";
import {linkTo} from "../address.js";
import {call, read} from "../server.js";
import {Loading} from "../states.js";
import * as format from "../format.js";

const pipelines = signal(null);

async function refresh() {
  pipelines.value = await read("v1/pipelines");
}

const COLOURS = {running: "good", failed: "bad"};

// By its number, so that of two clicks the second one ends no new run.
const restart = (one) =>
  attempt(async () => {
    const path = `v1/pipelines/${encodeURIComponent(one.name)}/restart`;
    await call(path, {run: one.run}, {method: "POST"});
    await refresh();
  });

export function Pipelines() {
  useEvery(2000, refresh, []);
  const found = useSignal(pipelines);
  if (!found) return html`<${Loading} title="Pipelines" />`;
  return html`<div class="bar">
      <h1>Pipelines</h1>
      <span class="dim">${format.count(found.length)} in the configuration</span>
    </div>
    <div class="panel scrolls" role="group" aria-label="Pipelines" tabindex="0">
      <table class="plain" id="pipelines">
        <caption class="hidden">Pipelines and their state</caption>
        <thead>
          <tr>
            <th scope="col">pipeline</th><th scope="col">from</th><th scope="col">to</th>
            <th scope="col">every</th><th scope="col">state</th>
            <th scope="col" class="number">rows/s</th><th scope="col" class="number">behind</th>
            <th scope="col" class="number">lag</th><th scope="col" class="number">dead letters</th>
            <th scope="col">last error</th><th scope="col"><span class="hidden">restart</span></th>
          </tr>
        </thead>
        <tbody>
          ${found.map(
            (one) => html`<tr key=${one.name}>
              <td>${one.name}</td>
              <td class="dim">${one.source}</td>
              <td>${one.topic ? html`<a href=${linkTo("topic", one.topic)}>${one.sink}</a>` : one.sink}</td>
              <td class="dim">${one.trigger}</td>
              <td class=${COLOURS[one.state] || "dim"}>${one.state}</td>
              <td class="number">${format.rate(one.rows_per_s)}</td>
              <td class="number">${format.count(one.behind)}</td>
              <td class="number">${one.behind_s == null ? "" : format.duration(one.behind_s * 1000)}</td>
              <td class="number ${one.dead_letters ? "bad" : ""}">${format.count(one.dead_letters)}</td>
              <td class="bad" title=${one.error_ts}>${one.error}</td>
              <td>${one.run != null && html`<button onClick=${() => restart(one)}>restart</button>`}</td>
            </tr>`,
          )}
        </tbody>
      </table>
      ${!found.length && html`<p class="padded dim">The configuration has no pipelines. Add a <span class="code">${"<Pipeline>"}</span> to config.xml, and reload.</p>`}
    </div>`;
}
