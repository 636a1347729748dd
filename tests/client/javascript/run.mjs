// Runs cases (cases.mjs) in Node: what became of each, as JSON. Arguments: a sow.js, and names of cases or none for
// all; and after a "--" the same once more, for another sow.js.
import { pathToFileURL } from "node:url";
import { afterLimit, outcomes } from "./outcomes.mjs";

let fail = () => {};
process.on("uncaughtException", (error) => fail(error));
// Nothing is left to do, and so nothing that a case waits for will come.
process.on("beforeExit", () => setImmediate(() => fail(new Error("it does not end"))));

function listen(failed) {
  fail = failed;
  return afterLimit(failed);
}

const found = [];
for (const [file, ...names] of process.argv.slice(2).join("\n").split("\n--\n").map((part) => part.split("\n"))) {
  found.push(await outcomes(await import(pathToFileURL(file)), names, listen));
}
console.log(JSON.stringify(found));
process.exit(0);
