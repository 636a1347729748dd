// The basis of all pages: elements (htm over preact), reactive state (signals), and one scheduler for
// drawing. A page draws at most once per animation frame, and not at all while it is hidden. Texts
// become text nodes, never markup, so that values of records are shown as they are.

import {html, render, useState, useEffect, useRef, useMemo} from "./vendored/htm-preact.js";
import {signal, computed, effect} from "./vendored/signals-core.js";

export {html, render, useState, useEffect, useRef, useMemo, signal, computed, effect};

// The value of a signal; the component is drawn again when it changes.
export function useSignal(source) {
  const [, draw] = useState(0);
  // The drawn value, so that a change between drawing and subscribing is not missed.
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
let isScheduled = false;

export function nextFrame(work) {
  due.add(work);
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    const now = [...due];
    due.clear();
    for (const one of now) one();
  });
}

// Calls `work` every `ms` while the page is visible, beginning at once. A slow answer is requested less
// often, so that a page takes at most a tenth of the server's time; with a bound, since an answer that
// took hours waited for a server that was down.
const SELDOM_MS = 30_000;

export function useEvery(ms, work, inputs) {
  useEffect(() => {
    let timer, over = false, shown = null;
    async function turn() {
      const begun = performance.now();
      if (!document.hidden) {
        try {
          await work();
          if (shown && problem.peek() === shown) problem.value = null;
        } catch (error) {
          if (!over) problem.value = shown = error;
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

// What a server is for, in its colour; nothing where its configuration does not say.
export function Environment({of}) {
  return of.environment ? html`<span class="environment ${of.colour || ""}">${of.environment}</span>` : null;
}

// What Escape closes: the last of these that was opened. A part that has handled the key itself stops it.
const closers = [];

export function useEscape(close, isOpen = true) {
  const now = useRef(close);
  now.current = close;
  useEffect(() => {
    if (!isOpen) return undefined;
    const own = () => now.current();
    closers.push(own);
    return () => closers.splice(closers.indexOf(own), 1);
  }, [isOpen]);
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !isTyping) {
    const box = document.querySelector("main input[aria-label=Filter], main input[type=search]");
    if (!box) return;
    box.focus();
    event.preventDefault();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    const menu = document.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    } else if (problem.peek()) {
      problem.value = null;
    } else {
      closers.at(-1)?.();
    }
  }
}
document.addEventListener("keydown", onKey);

// The question that is open: {text, action, answer}.
const question = signal(null);

// Whether the user says yes to what cannot be undone; `action` is the word on the button.
export const confirmed = (text, action) => new Promise((answer) => (question.value = {text, action, answer}));

export function Question() {
  const open = useSignal(question);
  const dialog = useRef(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  const end = (isYes) => {
    question.value = null;
    open.answer(isYes);
  };
  return html`<dialog ref=${dialog} aria-labelledby="question" onCancel=${() => end(false)}>
    <p id="question">${open.text}</p>
    <div class="bar">
      <button class="right" autofocus onClick=${() => end(false)}>Cancel</button>
      <button class="danger" onClick=${() => end(true)}>${open.action}</button>
    </div>
  </dialog>`;
}

const SAID_MS = 1500;

// Browsers have a clipboard only on pages of this machine or of TLS; elsewhere a selection is copied.
async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = Object.assign(document.createElement("textarea"), {value: text});
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  return box.remove();
}

// A button that copies a text.
export function Copy({text}) {
  const [copied, setCopied] = useState(false);
  const copy = () =>
    attempt(async () => {
      await toClipboard(text);
      setCopied(true);
      setTimeout(() => setCopied(false), SAID_MS);
    });
  return html`<button class="right" onClick=${copy}>${copied ? "copied" : "copy"}</button>`;
}

// The last error, shown at the foot of the page.
export const problem = signal(null);

// Runs an action of the user, and shows its error.
export async function attempt(work) {
  try {
    problem.value = null;
    return await work();
  } catch (error) {
    problem.value = error;
    return undefined;
  }
}
