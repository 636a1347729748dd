// A publisher with numbers and a subscriber, of several addresses: each number that comes is a line.
import { pathToFileURL } from "node:url";

const [file, urls, count, since] = process.argv.slice(2);
const { connect } = await import(pathToFileURL(file));
const sow = await connect({ url: urls.split(","), name: "node" });
const subscription = await sow.subscribe("feed", { bookmark: since });
const publisher = sow.idempotentPublisher("node");

async function publish() {
  for (let n = 1; n <= Number(count); n += 1) {
    await publisher.publish("feed", { id: n % 50, desk: n % 3, n });
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await publisher.drain();
}

const publishing = publish();
let seen = 0;
for await (const { record } of subscription) {
  if (record === undefined) continue;
  process.stdout.write(`${record.n}\n`);
  seen += 1;
  if (seen === Number(count)) break;
}
await publishing;
process.exit(0);
