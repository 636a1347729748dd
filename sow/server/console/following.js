// A subscription of the page that can be moved: what it asks for is asked of `options` each time, so
// that `replace` sends what holds now. Messages are handed to `take` as they come, with what was
// asked for when they were told; mistakes go to `failed`. It ends with the page that has begun it. A
// topic that is removed from the configuration, or may not be seen any more, is followed again when it
// comes back.

import {sow} from "./server.js";

const AGAIN_MS = 1000;
const COMES_BACK = ["REMOVAL", "AUTHORIZATION"];

export function follow(topic, options, take, failed) {
  const asked = [options()];
  let held = asked[0];
  let subscription = null;
  let isOver = false;
  let isMoving = false;
  let isDue = false;
  let isGone = false;

  async function listen() {
    const begun = await (await sow()).subscribe(topic, asked[0]);
    if (isOver) return begun.close();
    subscription = begun;
    isGone = false;
    if (isDue) replace();
    for await (const message of begun) {
      // Each group answers what was asked for next; one that begins anew, what was asked for last.
      if (message.command === "group_begin") held = asked.shift() ?? held;
      if (isOver) return undefined;
      take(message, held);
      if (message.command === "unsubscribed" && COMES_BACK.includes(message.reason)) waitForIt();
    }
    return undefined;
  }

  function waitForIt() {
    isGone = true;
    subscription = null;
    take({command: "gap"}, held); // what comes next is all that there is
    setTimeout(begin, AGAIN_MS);
  }

  function begin() {
    if (isOver) return;
    if (isGone) asked.splice(0, asked.length, options());
    listen().catch((error) => {
      if (isOver) return;
      if (isGone && error.reason === "invalid topic") setTimeout(begin, AGAIN_MS);
      else failed(error);
    });
  }
  begin();

  // One replacement at a time: whoever scrolls fast asks for where he is then.
  async function replace() {
    isDue = true;
    if (isMoving || !subscription) return;
    isMoving = true;
    try {
      while (isDue && !isOver && subscription) {
        isDue = false;
        const next = options();
        asked.push(next);
        await subscription.replace(next);
      }
    } catch (error) {
      if (!isGone) asked.pop();
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
