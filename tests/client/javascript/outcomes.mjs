// What became of each case: null, or what went wrong.
import * as cases from "./cases.mjs";

const LIMIT_MS = 5_000; // of a case that takes milliseconds

/** `listen(fail)` has `fail` called with an error that ends the case, whatever it waits for; what it returns is
 * called when the case is over. */
export async function outcomes(client, names = [], listen = afterLimit) {
  const found = {};
  for (const [name, run] of Object.entries(cases)) {
    if (names.length > 0 && !names.includes(name)) continue;
    let over;
    const failed = new Promise((_, reject) => (over = listen(reject)));
    found[name] = await Promise.race([run(client), failed]).then(() => null, (error) => String(error.stack ?? error));
    over();
  }
  return found;
}

/** Where nobody says that there is nothing left to do. */
export function afterLimit(fail) {
  const timer = setTimeout(() => fail(new Error("it does not end")), LIMIT_MS);
  timer.unref?.(); // in Node, which then says so at once
  return () => clearTimeout(timer);
}
