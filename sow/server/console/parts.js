// What all pages are made of: elements (htm over preact), state that tells who shows it when it
// changes (signals), and one beat for drawing. A page draws at most once in an animation frame,
// however much has come meanwhile, and not at all while nobody sees it. Texts become text nodes,
// never markup, so that what a record holds is shown as it is.

import {html, render, useState, useEffect, useRef, useMemo} from "./vendored/htm-preact.js";
import {signal, computed, effect} from "./vendored/signals-core.js";

export {html, render, useState, useEffect, useRef, useMemo, signal, computed, effect};

// The value of a signal, for a component that is drawn again when it changes.
export function useSignal(source) {
  const [, draw] = useState(0);
  // What was drawn, so that a change between drawing and listening is not missed.
  const drawn = useRef(null);
  drawn.current = source.peek();
  useEffect(
    () =>
      effect(() => {
        if (source.value !== drawn.current) draw((count) => count + 1);
      }),
    [source],
  );
  return drawn.current;
}

// Calls of the same `work` within one frame are one call.
const due = new Set();
let asked = false;

export function nextFrame(work) {
  due.add(work);
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const now = [...due];
    due.clear();
    for (const one of now) one();
  });
}

// Calls `work` every `ms` while the page is seen, beginning at once. An answer that takes long is
// asked for less often: a page never takes more than a tenth of the server's time for itself. But one
// that took hours waited for a server that was not there, and says nothing of what it costs.
const SELDOM_MS = 30_000;

export function useEvery(ms, work, inputs) {
  useEffect(() => {
    let timer, over = false, told = null;
    async function turn() {
      const begun = performance.now();
      if (!document.hidden) {
        try {
          await work();
          // What was wrong before is not any more.
          if (told && problem.peek() === told) problem.value = null;
        } catch (error) {
          if (!over) problem.value = told = error;
        }
      }
      if (!over) timer = setTimeout(turn, Math.max(ms, Math.min(SELDOM_MS, 10 * (performance.now() - begun))));
    }
    turn();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, inputs);
}

// What went wrong last, told in a line at the foot of the page.
export const problem = signal(null);

// Does what somebody has asked for, and tells what is wrong with it.
export async function attempt(work) {
  try {
    problem.value = null;
    return await work();
  } catch (error) {
    problem.value = error;
    return undefined;
  }
}
