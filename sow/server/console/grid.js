// The live grid: a table of a window that moves (regular-table draws the rows in view and no
// others). What has changed since it was last drawn is lit up and cools down; a row that leaves is
// struck out and fades, with the reason. Scrolling asks for another stretch (`onView`). It is drawn
// in the page's one beat, and only while something moves.

import "./vendored/regular-table.js";
import {html, nextFrame, useEffect, useRef} from "./parts.js";
import {GONE_MS} from "./window.js";
import * as format from "./format.js";

const HOT_MS = 180;
const WARM_MS = 600;

class Drawing {
  constructor(element, props) {
    this.table = element;
    this.props = props;
    this.cells = new Map();
    this.until = 0;
    this.first = 0;
    this.beat = () => this.draw();
    element.setDataListener((x0, y0, x1, y1) => this.data(x0, y0, x1, y1), {virtual_mode: "both"});
    element.addStyleListener(() => this.style());
  }

  // Something has changed; what cools down needs frames after it, too.
  touch() {
    this.until = performance.now() + Math.max(WARM_MS, GONE_MS) + 100;
    nextFrame(this.beat);
  }

  async draw() {
    if (!this.table.isConnected) return;
    await this.table.draw({throttle: false});
    this.props.onDrawn?.();
    if (performance.now() < this.until) nextFrame(this.beat);
  }

  row(y) {
    return this.rows[y - this.skip];
  }

  async data(x0, y0, x1, y1) {
    const {model, columns, total, headings} = this.props;
    const now = performance.now();
    this.rows = model.window.shown(now);
    this.skip = model.skip;
    const count = Math.max(total, model.skip + this.rows.length);
    if (y1 > y0) this.props.onView(y0, Math.min(y1, count));
    const shown = columns.slice(x0, x1);
    const data = shown.map((path) => {
      const column = [];
      for (let y = y0; y < Math.min(y1, count); y += 1) {
        const row = this.row(y);
        column.push(row ? format.at(row.document, path) : "·");
      }
      return format.aligned(column);
    });
    return {
      num_rows: count,
      num_columns: columns.length,
      column_headers: shown.map((path) => [headings(path)]),
      data,
    };
  }

  style() {
    const now = performance.now();
    const {columns, chosen} = this.props;
    const seen = new Map();
    for (const cell of this.table.querySelectorAll("tbody td")) {
      const meta = this.table.getMeta(cell);
      const row = meta && this.row(meta.y);
      const path = meta && columns[meta.x];
      cell.className = "";
      if (!row) {
        cell.parentNode.className = "";
        continue;
      }
      const value = format.at(row.document, path);
      if (typeof value === "number") cell.classList.add("numeric");
      if (meta.x === meta.x0 || cell === cell.parentNode.firstElementChild) {
        cell.parentNode.className = this.classOf(row, now, chosen);
        cell.title = row.reason || "";
      }
      if (!row.reason) this.light(cell, row, path, value, now, seen);
    }
    this.cells = seen;
    const aligned = new Map();
    for (const cell of this.table.querySelectorAll("tbody tr:first-child td")) {
      const meta = this.table.getMeta(cell);
      if (meta) aligned.set(meta.x, cell.classList.contains("numeric"));
    }
    const order = this.props.order;
    for (const cell of this.table.querySelectorAll("thead th")) {
      const path = columns[this.table.getMeta(cell)?.x];
      cell.classList.toggle("numeric", aligned.get(this.table.getMeta(cell)?.x) === true);
      cell.classList.toggle("ordered", order.split(" ")[0] === path);
      cell.scope = "col";
      if (order.split(" ")[0] === path) {
        cell.setAttribute("aria-sort", / DESC$/i.test(order) ? "descending" : "ascending");
      } else {
        cell.removeAttribute("aria-sort");
      }
    }
  }

  classOf(row, now, chosen) {
    if (row.reason) return now - row.since > GONE_MS / 2 ? "gone going" : "gone";
    return row.key === chosen ? "chosen" : "";
  }

  // Light a cell up whose value is another than when it was drawn before.
  light(cell, row, path, value, now, seen) {
    const name = `${row.key} ${path}`;
    const before = this.cells.get(name);
    const shown = before ? {...before, value} : {value, at: row.entered || 0, way: ""};
    if (before && before.value !== value && typeof value !== "object") {
      shown.at = now;
      shown.way = typeof value !== "number" ? "" : value > before.value ? "up" : "down";
    }
    seen.set(name, shown);
    const age = now - shown.at;
    if (!shown.at || age >= WARM_MS) return;
    cell.classList.add(age < HOT_MS ? "hot" : "warm");
    if (shown.way) cell.classList.add(shown.way);
  }
}

// `model`: {window, skip}; the rows that it holds stand from `skip` on. `total`: how many there are.
export function Grid(props) {
  const element = useRef(null);
  const drawing = useRef(null);
  useEffect(() => {
    const table = element.current;
    drawing.current = new Drawing(table, props);
    props.model.touch = () => drawing.current.touch();
    const onDown = (event) => {
      const meta = event.target.closest("td, th") && table.getMeta(event.target.closest("td, th"));
      if (!meta) return;
      const current = drawing.current;
      if (event.target.closest("thead")) current.props.onOrder(current.props.columns[meta.x]);
      else current.props.onChoose(current.row(meta.y)?.key ?? null);
    };
    const onKey = (event) => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      const current = drawing.current;
      if (event.key === "Escape") current.props.onChoose(null);
      if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
      const rows = current.props.model.window.rows;
      const at = rows.findIndex((one) => one.key === current.props.chosen);
      const next = rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))];
      if (next) current.props.onChoose(next.key);
      event.preventDefault();
    };
    table.addEventListener("click", onDown);
    table.addEventListener("keydown", onKey);
    drawing.current.touch();
    return () => {
      table.removeEventListener("click", onDown);
      table.removeEventListener("keydown", onKey);
      props.model.touch = () => {};
    };
  }, [props.model]);
  useEffect(() => {
    if (!drawing.current) return;
    drawing.current.props = props;
    drawing.current.touch();
  });
  return html`<div class="grid">
    <regular-table ref=${element} tabindex="0" aria-label=${props.label}></regular-table>
    ${props.empty && html`<div class="empty">${props.empty}</div>`}
  </div>`;
}
