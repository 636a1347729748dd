// A subscription of the page that can be moved: what it asks for is asked of `options` each time, so
// that `replace` sends what holds now. Messages are handed to `take` as they come, with what was
// asked for when they were told; mistakes go to `failed`. It ends with the page that has begun it.

import {sow} from "./server.js";

export function follow(topic, options, take, failed) {
  const asked = [options()];
  let held = asked[0];
  let subscription = null;
  let isOver = false;
  let isMoving = false;
  let isDue = false;

  async function listen() {
    subscription = await (await sow()).subscribe(topic, asked[0]);
    if (isOver) return subscription.close();
    if (isDue) replace();
    for await (const message of subscription) {
      // Each group answers what was asked for next; one that begins anew, what was asked for last.
      if (message.command === "group_begin") held = asked.shift() ?? held;
      if (isOver) return undefined;
      take(message, held);
    }
    return undefined;
  }
  listen().catch((error) => isOver || failed(error));

  // One replacement at a time: whoever scrolls fast asks for where he is then.
  async function replace() {
    isDue = true;
    if (isMoving || !subscription) return;
    isMoving = true;
    try {
      while (isDue && !isOver) {
        isDue = false;
        const next = options();
        asked.push(next);
        await subscription.replace(next);
      }
    } catch (error) {
      asked.pop();
      if (!isOver) failed(error);
    } finally {
      isMoving = false;
    }
  }

  return {
    replace,
    close() {
      isOver = true;
      subscription?.close();
    },
  };
}
