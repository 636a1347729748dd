// An agent in Node: a step a line comes in, its outcome goes out.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { Agent } from "./agent.mjs";

const [file, url] = process.argv.slice(2);
let agent = new Agent(await import(pathToFileURL(file)), url);
for await (const line of createInterface({ input: process.stdin })) {
  const { verb, words } = JSON.parse(line);
  if (verb === "renew") {
    agent = agent.renewed();
    continue;
  }
  const outcome = await agent.act(verb, words).catch((error) => ({ thrown: String(error.stack) }));
  process.stdout.write(JSON.stringify(outcome) + "\n");
}
process.exit(0);
