// Terms of a filter that the console writes for a value of a record, and the sum of two filters.

import {canonical} from "./format.js";

const TERM_CHARS_MAX = 1000; // of a text in it: the address has the whole filter

const quoted = (text) => `'${text.replace(/[\\']/g, "\\$&")}'`;

// The term that records with this value pass; null for what a filter cannot compare
// with, or not in an address.
export function termOf(path, value) {
  const field = canonical(path);
  if (value === undefined || value === null) return `${field} IS NULL`;
  if (typeof value === "string") return value.length > TERM_CHARS_MAX ? null : `${field} = ${quoted(value)}`;
  if (typeof value === "boolean") return `${field} = ${value ? 1 : 0}`;
  return typeof value === "number" || typeof value === "bigint" ? `${field} = ${value}` : null;
}

// The filter that passes what both pass.
export function joined(filter, term) {
  if (!filter) return term;
  if (filter === term || filter.split(" AND ").includes(term)) return filter;
  return /\bOR\b/i.test(filter) ? `(${filter}) AND ${term}` : `${filter} AND ${term}`;
}

// A text in a list of an option: [/a, /b].
export const fieldNamed = (name) => canonical(`/${name}`);
