// The same view in other words: what to write in a shell, in Python, in JavaScript and for Spark to
// get what is on the screen. Texts are quoted as each language wants it, whatever they hold.

import {html, useState} from "./parts.js";
import {addressOf, topicPath} from "./server.js";

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
// JSON's texts are texts of Python and JavaScript, too.
const text = (value) => JSON.stringify(value);

// The first `top` records of the view, as all of them but Spark's show the columns that it shows.
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

export function CopyAs({topic, asked}) {
  const [shown, setShown] = useState("curl");
  const [copied, setCopied] = useState(false);
  const all = snippets(addressOf(), topic, asked);
  const copy = async () => {
    await navigator.clipboard.writeText(all[shown]);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<details class="menu">
    <summary>Copy as</summary>
    <div>
      <div class="bar">
        ${Object.keys(all).map((name) => html`<button key=${name} aria-pressed=${String(name === shown)} onClick=${() => setShown(name)}>${name}</button>`)}
        <button class="right" onClick=${copy}>${copied ? "copied" : "copy"}</button>
      </div>
      <pre id="snippet">${all[shown]}</pre>
    </div>
  </details>`;
}
