// Formats of numbers, times and values: short, aligned, and the same on all pages.

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const one = new Intl.NumberFormat("en", {minimumFractionDigits: 1, maximumFractionDigits: 1});

export const count = (value) => (value == null ? "" : whole.format(value));

export function rate(value) {
  if (value == null) return "";
  if (value === 0) return "0";
  return value < 10 ? one.format(value) : whole.format(value);
}

export const ratio = (value) => (value == null ? "" : `${one.format(value)}×`);

export function bytes(value) {
  if (value == null) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${place && value < 100 ? one.format(value) : whole.format(value)} ${units[place]}`;
}

export function duration(ms) {
  if (ms == null) return "";
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 60_000) return `${one.format(ms / 1000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${one.format(ms / 3_600_000)} h`;
  return `${whole.format(ms / 86_400_000)} d`;
}

// A moment as the user's clock shows it: the time of today, else with its date.
export function moment(text, now = new Date()) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  const pad = (value) => String(value).padStart(2, "0");
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(pad).join(":");
  const date = [at.getFullYear(), pad(at.getMonth() + 1), pad(at.getDate())].join("-");
  return at.toDateString() === now.toDateString() ? time : `${date} ${time}`;
}

// The path of a whole message that is text or bytes here, such as XML.
export const WHOLE = "";

const isLeaf = (value) => typeof value !== "object" || value === null || value instanceof Uint8Array;

export const isDocument = (value) => !isLeaf(value) && !Array.isArray(value);

// The syntax of a path (docs/expressions.md): in brackets if names have characters that end a name, and
// name by name, as $['a/b'], if they have characters that end a name in brackets.
const ODD = /[\s[\](){},;=<>!'"*+%&|^~?\\]/;
const ENDS = /[/\]]|^$/;
const QUOTED = /\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]/gs;

function written(names) {
  if (names.some((name) => ENDS.test(name))) {
    return `$${names.map((name) => `['${name.replace(/[\\']/g, "\\$&")}']`).join("")}`;
  }
  const path = `/${names.join("/")}`;
  return ODD.test(path) ? `[${path}]` : path;
}

// The names in a path. A grid requests those of its columns for every cell that it draws.
const known = new Map();
const KNOWN_MAX = 1000;

function steps(path) {
  let names = known.get(path);
  if (!names) {
    if (known.size >= KNOWN_MAX) known.clear();
    known.set(path, (names = parsed(path)));
  }
  return names;
}

function parsed(path) {
  if (path.startsWith("$")) {
    return [...path.matchAll(QUOTED)].map(([, single, double]) => (single ?? double).replace(/\\(.)/gs, "$1"));
  }
  return (path.startsWith("[") ? path.slice(1, -1) : path).slice(1).split("/");
}

// The canonical spelling of a path.
export const canonical = (path) => written(steps(path));

export const heading = (path) => steps(path).join("/") || "message";

// Paths in an address, separated by commas; one in brackets may contain commas.
export const listed = (text) => text.match(/(?:[^,[]|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\])+/gs) ?? [];

// A cell shows the beginning of a value: texts of a megabyte in a hundred rows would take seconds to draw.
const SHOWN_MAX = 300;

const cut = (text) => (text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX).replace(/[\ud800-\udbff]$/, "")}…` : text);

// Bytes are shown as base64.
function bytesText(value) {
  const shown = btoa(String.fromCharCode(...value.subarray(0, SHOWN_MAX)));
  return value.length > SHOWN_MAX ? `${shown}…` : shown;
}

// Characters that would be seen as nothing, or turn what stands beside them, as a string of JavaScript
// writes them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function seen(character) {
  const short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character];
  return short ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

export const visible = (text) => text.replace(UNSEEN, seen);

// A value of a record as the text of a cell. A field that is absent is blank; NULL and the empty text
// are written, and `isSpecial` is what parts them from texts that read alike.
export function cell(value) {
  if (value === undefined) return "";
  if (value === null) return "null";
  if (value === "") return '""';
  if (value instanceof Uint8Array) return bytesText(value);
  if (typeof value === "object") return cut(visible(objectText(value)));
  return typeof value === "string" ? visible(cut(value)) : String(value);
}

// Objects of a record are made once and never changed.
const texts = new WeakMap();

function objectText(value) {
  if (!texts.has(value)) texts.set(value, cut(json(value)));
  return texts.get(value);
}

export const isNumber = (value) => typeof value === "number" || typeof value === "bigint";

export const isSpecial = (value) => value === null || value === "";

// A number in few characters.
export function shortNumber(value) {
  if (typeof value !== "number") return value == null ? "" : String(value);
  return String(Number(value.toPrecision(6)));
}

// A value as JSON, with all digits of integers that a number does not represent (parseExact of sow.js).
// They pass JSON.stringify as texts that begin with what no record can foresee.
const MARK = `${crypto.getRandomValues(new Uint32Array(4)).join("-")} `;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

export function json(value, indent) {
  const marked = JSON.stringify(value, (_, part) => (typeof part === "bigint" ? `${MARK}${part}` : part), indent);
  return marked.replace(MARKED, "$1");
}

// A document as indented JSON to look at: what is not seen is written, so that a text shows all it has.
export const visibleJson = (value) => json(value, 2).split("\n").map(visible).join("\n");

// The paths of all fields of a document, including nested ones.
export function paths(document, before = [], found = []) {
  if (!isDocument(document)) return [WHOLE];
  for (const [name, value] of Object.entries(document)) {
    const names = [...before, name];
    if (value && typeof value === "object" && !Array.isArray(value)) paths(value, names, found);
    else found.push(written(names));
  }
  return found;
}

// A short label of a record: its first field, or its text.
export const first = (document) => (document ? cell(isDocument(document) ? Object.values(document)[0] : document) : "");

// The value at a path of a document.
export function at(document, path) {
  let value = document;
  for (const name of path === WHOLE ? [] : steps(path)) {
    // Own properties only: every object has a "constructor".
    if (isLeaf(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}

// The cells of a column, with numbers aligned at the decimal point, or rounded to so many digits.
export function aligned(column, digits) {
  if (digits !== undefined) return column.map((value) => (Number.isFinite(value) ? value.toFixed(digits) : cell(value)));
  const behind = (text) => (text.includes("e") ? 0 : text.length - 1 - text.indexOf(".", 1)) % text.length;
  const texts = column.map(cell);
  const places = column.map((value, at) => (Number.isFinite(value) && !Number.isInteger(value) ? behind(texts[at]) : 0));
  const most = Math.max(0, ...places);
  if (!most) return texts;
  // A figure space is as wide as a digit, and so is the point in this font.
  return texts.map((text, at) =>
    isNumber(column[at]) ? text + "\u2007".repeat(most - places[at] + (places[at] ? 0 : 1)) : text,
  );
}
