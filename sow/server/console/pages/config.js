// The configuration: the current file with the findings below their lines; the running values, and
// those of the file that differ; and the reload, which shows its changes or its error.

import {html, useState, useEffect, attempt} from "../parts.js";
import {call, read} from "../server.js";
import {Loading} from "../states.js";
import * as format from "../format.js";

export function Config() {
  const [file, setFile] = useState(null);
  const [running, setRunning] = useState(null);
  const [changes, setChanges] = useState(null);
  const learn = () =>
    attempt(async () => {
      const [now, found] = await Promise.all([read("v1/config"), read("v1/config/file")]);
      setRunning(now);
      setFile(found);
    });
  useEffect(() => {
    learn();
  }, []);
  const reload = () =>
    attempt(async () => {
      setChanges(null);
      const answer = await call("v1/config/reload", {}, {method: "POST"});
      setChanges((await answer.json()).changes);
      await learn();
    });
  if (!running) return html`<${Loading} title="Configuration" />`;
  const errors = file.findings.filter((one) => one.severity === "error").length;
  return html`<div class="bar">
      <h1>${running.name}</h1>
      <span class="dim code">${file.file}</span>
      <span id="verdict" class=${errors ? "bad" : file.file ? "good" : "dim"}>${verdict(file, errors)}</span>
      <button class="right first" disabled=${errors > 0 || !file.file} onClick=${reload}>Reload</button>
    </div>
    ${changes &&
    html`<p class="panel padded" role="status" id="changes">
      ${changes.length ? `Reloaded: ${changes.join(", ")}` : "Reloaded: nothing has changed."}
    </p>`}
    <div class="columns">
      ${file.file && html`<${Listing} file=${file} />`}
      <${Values} running=${running} wanted=${file.values ?? running} />
    </div>`;
}

function verdict(file, errors) {
  if (!file.file) return "This server was not started from a file.";
  if (errors) return `${errors} ${errors === 1 ? "error" : "errors"}`;
  const warnings = file.findings.length;
  return warnings ? `valid, ${warnings} ${warnings === 1 ? "warning" : "warnings"}` : "valid";
}

function Listing({file}) {
  const found = new Map();
  for (const one of file.findings) found.set(one.line, [...(found.get(one.line) || []), one]);
  return html`<section class="panel listing" tabindex="0" aria-label="The file">
    ${file.text.split("\n").map(
      (line, place) => html`<div key=${place}>${line || " "}</div>
        ${(found.get(place + 1) || []).map(
          (one, number) => html`<div class="finding ${one.severity}" key=${`${place}-${number}`} role="note">
            ${one.element}: ${one.message}${one.instead ? `; ${one.instead}` : ""}
          </div>`,
        )}`,
    )}
  </section>`;
}

// Values by their paths, without empty ones and without line numbers.
function flat(configuration) {
  const found = new Map();
  const walk = (value, path) => {
    if (Array.isArray(value) && value.some((one) => one && typeof one === "object")) {
      value.forEach((one) => walk(one, `${path}[${one.name ?? value.indexOf(one)}]`));
    } else if (value && typeof value === "object" && !Array.isArray(value)) {
      for (const [name, inside] of Object.entries(value)) {
        if (name !== "line") walk(inside, path ? `${path}.${name}` : name);
      }
    } else if (value !== null && value !== "" && !(Array.isArray(value) && !value.length)) {
      found.set(path, typeof value === "string" ? format.visible(value) : format.json(value));
    }
  };
  walk(configuration, "");
  return found;
}

// The running values; first those that differ from the file, which a reload would change.
function Values({running, wanted}) {
  const [now, then] = [flat(running), flat(wanted)];
  const paths = [...new Set([...now.keys(), ...then.keys()])];
  const others = paths.filter((path) => now.get(path) !== then.get(path));
  const rows = [...now].filter(([path]) => !others.includes(path));
  return html`${others.length > 0 && html`<${Difference} others=${others} now=${now} then=${then} />`}
  <section class="panel scrolls" tabindex="0" aria-label="Running values">
    <table class="plain" id="values">
      <caption class="padded"><h2>Running values</h2></caption>
      <tbody>
        ${rows.map(([path, value]) => html`<tr key=${path}>
          <th scope="row" class="code">${path}</th>
          <td class="code">${value}</td>
        </tr>`)}
      </tbody>
    </table>
  </section>`;
}

function Difference({others, now, then}) {
  return html`<section class="panel scrolls" tabindex="0" aria-label="Differences in the file">
    <table class="plain" id="difference">
      <caption class="padded"><h2>Differences in the file</h2></caption>
      <thead>
        <tr><th scope="col">value</th><th scope="col">running</th><th scope="col">in the file</th></tr>
      </thead>
      <tbody>
        ${others.map((path) => html`<tr key=${path}>
          <th scope="row" class="code">${path}</th>
          <td class="code">${now.get(path) ?? ""}</td>
          <td class="code">${then.get(path) ?? ""}</td>
        </tr>`)}
      </tbody>
    </table>
  </section>`;
}
