// What became of each case: null, or what went wrong.
import * as cases from "./cases.mjs";

const LIMIT_MS = 5_000; // of a case that takes milliseconds

export async function outcomes(client, names = []) {
  const found = {};
  for (const [name, run] of Object.entries(cases)) {
    if (names.length > 0 && !names.includes(name)) continue;
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("it does not end")), LIMIT_MS);
    });
    found[name] = await Promise.race([run(client), late]).then(() => null, (error) => String(error.stack ?? error));
    clearTimeout(timer);
  }
  return found;
}
