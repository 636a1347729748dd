// The view as code: shell, Python, JavaScript and Spark code that reads what is on the screen. Texts
// are quoted by the rules of each language.

import {Copy, html, useState} from "./parts.js";
import {addressOf, topicPath} from "./server.js";

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
// Strings of JSON are strings of Python and JavaScript, too.
const text = (value) => JSON.stringify(value);

// Code for the first `top` records of the view; all but Spark's selects its columns.
export function snippets(url, topic, {filter = "", order = "", columns = "", top}) {
  const wanted = Object.entries({filter, order_by: order, select: columns, top_n: top}).filter(([, value]) => value !== "");
  const query = new URLSearchParams(wanted).toString();
  const named = wanted.map(([name, value]) => [name, typeof value === "number" ? value : text(value)]);
  const python = [text(topic), ...named.map(([name, value]) => `${name}=${value}`)];
  const script = named.map(([name, value]) => `${name}: ${value}`);
  const spark = [`url=${text(url)}`, `topic=${text(topic)}`, ...(filter ? [`filter=${text(filter)}`] : []), "inferSchema=True"];
  return {
    curl: `curl -s ${shell(`${url}/${topicPath(topic, "/records")}?${query}`)}`,
    Python: [
      "from sow.client.sync import Client",
      "",
      `with Client(${text(url)}) as client, client.live(${python.join(", ")}) as live:`,
      "    for record in live:",
      "        print(record)",
      "    for change in live.changes():",
      "        print(change)",
    ].join("\n"),
    JavaScript: [
      `import {connect} from ${text(`${url}/sow.js`)};`,
      "",
      `const sow = await connect({url: ${text(url)}});`,
      `const live = await sow.live(${text(topic)}, {${script.join(", ")}});`,
      "const changes = live.changes();",
      "for (const record of live.rows) console.log(record);",
      "for await (const change of changes) console.log(change);",
    ].join("\n"),
    Spark: [
      "from sow.spark import session",
      "",
      `records = session().read.format("sow").options(${spark.join(", ")}).load()`,
      "records.show()",
    ].join("\n"),
  };
}

export function CopyAs({topic, params}) {
  const [shown, setShown] = useState("curl");
  const all = snippets(addressOf(), topic, params);
  return html`<details class="menu">
    <summary>Copy as</summary>
    <div>
      <div class="bar">
        ${Object.keys(all).map((name) => html`<button key=${name} aria-pressed=${String(name === shown)} onClick=${() => setShown(name)}>${name}</button>`)}
        <${Copy} text=${all[shown]} />
      </div>
      <pre id="snippet" tabindex="0">${all[shown]}</pre>
    </div>
  </details>`;
}
