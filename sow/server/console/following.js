// A subscription of the page that can be moved: `options` is called each time, so that `replace` sends
// the current ones. `take` gets each message with the options that it answers, `failed` gets errors. It
// ends with its page. A topic that is removed from the configuration, or may not be read any more, is
// subscribed to again when it comes back.

import {sow} from "./server.js";

const AGAIN_MS = 1000;
const COMES_BACK = ["REMOVAL", "AUTHORIZATION"];

export function follow(topic, options, take, failed) {
  const requested = [options()];
  let held = requested[0];
  let subscription = null;
  let isOver = false;
  let isMoving = false;
  let isDue = false;
  let isGone = false;

  async function listen() {
    const begun = await (await sow()).subscribe(topic, requested[0]);
    if (isOver) return begun.close();
    subscription = begun;
    isGone = false;
    if (isDue) replace();
    for await (const message of begun) {
      // Each group answers the next request; after a reconnect, the last one.
      if (message.command === "group_begin") held = requested.shift() ?? held;
      if (isOver) return undefined;
      take(message, held);
      if (message.command === "unsubscribed" && COMES_BACK.includes(message.reason)) waitForIt();
    }
    return undefined;
  }

  function waitForIt() {
    isGone = true;
    subscription = null;
    take({command: "gap"}, held); // the next group is the whole content
    setTimeout(begin, AGAIN_MS);
  }

  function begin() {
    if (isOver) return;
    if (isGone) requested.splice(0, requested.length, options());
    listen().catch((error) => {
      if (isOver) return;
      if (isGone && error.reason === "invalid topic") setTimeout(begin, AGAIN_MS);
      else failed(error);
    });
  }
  begin();

  // One replacement at a time, always with the current options.
  async function replace() {
    isDue = true;
    if (isMoving || !subscription) return;
    isMoving = true;
    try {
      while (isDue && !isOver && subscription) {
        isDue = false;
        const next = options();
        requested.push(next);
        await subscription.replace(next);
      }
    } catch (error) {
      if (!isGone) requested.pop();
      if (!isOver && !isGone) failed(error);
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
