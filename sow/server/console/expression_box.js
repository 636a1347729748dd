// The input of an expression: a filter or an order. It is set by Enter or by leaving the box. A syntax
// error of the server is underlined at its `position`, in a copy of the text behind the box, with the
// message below. While the user types, fields of the topic and functions complete the word before the
// cursor.

import {html, useEffect, useRef, useState} from "./parts.js";
import {heading} from "./format.js";
import {read} from "./server.js";

const OFFERED_MAX = 12;
let functions = null;

async function knownFunctions() {
  functions ??= read("v1/functions").catch(() => []);
  return functions;
}

// The word before the cursor that a path or a function may begin with.
export function wordBefore(text, cursor) {
  return /(?:\[?\/[\w/.-]*|[A-Za-z_][\w]*)$/.exec(text.slice(0, cursor))?.[0] || "";
}

// Completions of a word: paths after a slash, functions otherwise.
export function offered(word, fields, named) {
  if (!word) return [];
  const typed = word.replace("[", "");
  if (typed.startsWith("/")) {
    const found = fields.filter((path) => `/${heading(path)}`.startsWith(typed) && path !== word);
    return found.slice(0, OFFERED_MAX).map((path) => ({text: path, hint: "field", insert: path}));
  }
  const upper = word.toUpperCase();
  const found = named.filter((one) => one.name.startsWith(upper));
  return found.slice(0, OFFERED_MAX).map((one) => ({
    text: one.signature,
    hint: one.description,
    insert: `${one.name}(`,
  }));
}

export const FILTER = {label: "Filter", placeholder: "Filter, such as /price > 100 AND /symbol = 'ACME'"};
export const ORDER = {label: "Order", placeholder: "Order: /price DESC", short: true};

// The box that an error belongs to; null: none.
export const ofOrder = (error) => (error?.reason === "bad orderby" ? error : null);
export const ofPivot = (error) => (/^(grouping|projection)\b/.test(error?.detail || error?.message) ? error : null);
export const ofFilter = (error) => (error?.position !== undefined && !ofOrder(error) && !ofPivot(error) ? error : null);

export function ExpressionBox({topic, value, wrong, fields = [], onSet, label, placeholder, short}) {
  const id = label.toLowerCase();
  const [text, setText] = useState(value);
  const [choices, setChoices] = useState([]);
  const [place, setPlace] = useState(0);
  const [known, setKnown] = useState([]);
  const input = useRef(null);
  const echo = useRef(null);
  useEffect(() => setText(value), [value, topic]);
  useEffect(() => {
    knownFunctions().then(setKnown);
  }, []);
  const follow = () => {
    if (echo.current && input.current) echo.current.scrollLeft = input.current.scrollLeft;
  };
  useEffect(follow);

  const offer = (event) => {
    const box = event.target;
    setText(box.value);
    setChoices(offered(wordBefore(box.value, box.selectionStart), fields, known));
    setPlace(0);
  };
  const take = (choice) => {
    const box = input.current;
    const cursor = box.selectionStart;
    const begun = cursor - wordBefore(text, cursor).length;
    const next = text.slice(0, begun) + choice.insert + text.slice(cursor);
    setText(next);
    setChoices([]);
    box.value = next;
    box.focus();
    box.setSelectionRange(begun + choice.insert.length, begun + choice.insert.length);
  };
  const set = () => {
    setChoices([]);
    if (text.trim() !== value) onSet(text.trim());
  };
  const onKey = (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (choices.length && step) {
      setPlace((place + step + choices.length) % choices.length);
      event.preventDefault();
    } else if (choices.length && event.key === "Tab") {
      take(choices[place]);
      event.preventDefault();
    } else if (event.key === "Escape") {
      if (choices.length || text !== value) event.stopPropagation();
      if (choices.length) setChoices([]);
      else setText(value);
    } else if (event.key === "Enter") {
      set();
    }
  };

  const isWrong = wrong && text === value;
  // Positions count code points; JavaScript strings count UTF-16 units.
  const characters = [...text];
  const position = isWrong ? characters.slice(0, wrong.position ?? 0).join("").length : 0;
  // At the end a blank after the text is underlined.
  const marked = isWrong ? /^(\w+|.)/su.exec(text.slice(position))?.[0] || "\u00a0" : "";
  return html`<div class=${short ? "query short" : "query"}>
    <div class="echo" ref=${echo} aria-hidden="true">
      ${isWrong && html`${text.slice(0, position)}<span class="wrong">${marked}</span>${text.slice(position + marked.length)}`}
    </div>
    <input
      ref=${input}
      role="combobox"
      aria-label=${label}
      aria-expanded=${String(choices.length > 0)}
      aria-controls=${`${id}-choices`}
      aria-autocomplete="list"
      aria-activedescendant=${choices.length ? `${id}-choice-${place}` : null}
      aria-invalid=${String(Boolean(isWrong))}
      aria-describedby=${isWrong ? `${id}-error` : null}
      spellcheck=${false}
      autocomplete="off"
      placeholder=${placeholder}
      value=${text}
      onInput=${offer}
      onKeyDown=${onKey}
      onScroll=${follow}
      onBlur=${set}
    />
    ${isWrong && html`<div class="error" id=${`${id}-error`} role="alert">${wrong.detail || wrong.message}</div>`}
    ${choices.length > 0 &&
    html`<ul class="choices" id=${`${id}-choices`} role="listbox">
      ${choices.map(
        (choice, number) => html`<li
          key=${choice.text}
          id=${`${id}-choice-${number}`}
          role="option"
          aria-selected=${String(number === place)}
          onMouseDown=${(event) => {
            event.preventDefault();
            take(choice);
          }}
        >
          <span>${choice.text}</span><span class="faint">${choice.hint}</span>
        </li>`,
      )}
    </ul>`}
  </div>`;
}
