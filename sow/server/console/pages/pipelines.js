// The Spark pipelines of the configuration: what each reads and writes, and its state.

import {html, useSignal, signal, useEvery} from "../parts.js";
import {linkTo} from "../address.js";
import {read} from "../server.js";
import * as format from "../format.js";

const pipelines = signal(null);

async function refresh() {
  pipelines.value = await read("v1/pipelines");
}

const COLOURS = {running: "good", failed: "bad"};

export function Pipelines() {
  useEvery(2000, refresh, []);
  const found = useSignal(pipelines);
  if (!found) return html`<p class="dim">Loading the pipelines …</p>`;
  return html`<div class="bar">
      <h1>Pipelines</h1>
      <span class="dim">${format.count(found.length)} in the configuration</span>
    </div>
    <div class="panel scrolls">
      <table class="plain" id="pipelines">
        <caption class="hidden">Pipelines and their state</caption>
        <thead>
          <tr>
            <th scope="col">pipeline</th><th scope="col">from</th><th scope="col">to</th>
            <th scope="col">every</th><th scope="col">state</th>
            <th scope="col" class="number">rows/s</th><th scope="col" class="number">behind</th>
            <th scope="col">last error</th>
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
              <td class="bad">${one.error}</td>
            </tr>`,
          )}
        </tbody>
      </table>
      ${!found.length && html`<p class="padded dim">The configuration has no pipelines.</p>`}
    </div>`;
}
