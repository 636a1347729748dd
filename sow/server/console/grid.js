// The live grid: a table of a moving window (regular-table draws only the rows in view). Changed cells
// are highlighted and fade; a row that leaves is struck out and fades, with the reason. Scrolling
// requests another range (`onView`). It is drawn by the scheduler of the page, and only while something
// moves. For screen readers it is a grid of rows with one selected; the table has the focus, whatever
// rows it draws.

import "./vendored/regular-table.js";
import {html, nextFrame, useEffect, useRef} from "./parts.js";
import {GONE_MS} from "./window.js";
import * as format from "./format.js";

const HOT_MS = 180;
const WARM_MS = 600;

// Sets an attribute if it differs: screen readers announce each setting.
function mark(element, name, value) {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

class Drawing {
  constructor(element, props) {
    this.table = element;
    this.props = props;
    this.cells = new Map();
    this.until = 0;
    this.wanted = null; // the row to select once it is loaded
    this.beat = () => this.draw();
    element.setDataListener((x0, y0, x1, y1) => this.data(x0, y0, x1, y1), {virtual_mode: "both"});
    element.addStyleListener(() => this.style());
  }

  // Something has changed; fading needs further frames.
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
    this.count = count;
    if (y1 > y0) this.props.onView(y0, Math.min(y1, count));
    if (this.wanted !== null && this.row(this.wanted)) this.choose(this.wanted);
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
    this.describe();
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
      if (format.isSpecial(value)) cell.classList.add("special");
      if (meta.x === meta.x0 || cell === cell.parentNode.firstElementChild) {
        this.styleRow(cell.parentNode, row, meta.y, now, chosen);
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
    const {order} = this.props;
    const ordered = order.replace(/ (ASC|DESC)$/i, "");
    for (const cell of this.table.querySelectorAll("thead th")) {
      const path = columns[this.table.getMeta(cell)?.x];
      cell.classList.toggle("numeric", aligned.get(this.table.getMeta(cell)?.x) === true);
      cell.classList.toggle("ordered", ordered === path);
      cell.scope = "col";
      if (ordered === path) {
        cell.setAttribute("aria-sort", / DESC$/i.test(order) ? "descending" : "ascending");
      } else {
        cell.removeAttribute("aria-sort");
      }
    }
  }

  // Attributes for screen readers.
  describe() {
    const grid = this.table.querySelector("table");
    this.table.removeAttribute("tabindex"); // which it has given itself
    const {label, columns, chosen, model} = this.props;
    mark(grid, "role", "grid");
    mark(grid, "tabindex", 0);
    mark(grid, "aria-label", label);
    mark(grid, "aria-rowcount", (this.count ?? 0) + 1);
    mark(grid, "aria-colcount", columns.length);
    const at = model.window.rows.findIndex((row) => row.key === chosen);
    if (at < 0) grid.removeAttribute("aria-activedescendant");
    else mark(grid, "aria-activedescendant", `record-${chosen}`);
  }

  // The row index counts the header and starts at one.
  styleRow(element, row, y, now, chosen) {
    element.className = this.classOf(row, now, chosen);
    element.id = row.reason ? "" : `record-${row.key}`;
    mark(element, "aria-rowindex", y + 2);
    mark(element, "aria-selected", row.key === chosen);
  }

  // Selects the next or the previous row; the first visible one if none is selected.
  step(by) {
    const {model, chosen} = this.props;
    const at = model.window.rows.findIndex((row) => row.key === chosen);
    const first = this.table.querySelector("tbody td");
    const seen = (first && this.table.getMeta(first)?.y) ?? 0;
    const y = this.wanted ?? (at < 0 ? seen - by : model.skip + at);
    this.choose(Math.max(0, Math.min((this.count ?? 1) - 1, y + by)));
  }

  // A row that is not loaded is selected when it comes: scrolling requests it.
  choose(y) {
    const row = this.props.model.window.rows[y - this.props.model.skip];
    this.wanted = row ? null : y;
    if (row) {
      // Set at once, since keys may come faster than frames.
      this.props = {...this.props, chosen: row.key};
      this.props.onChoose(row.key);
    }
    this.show(y);
  }

  // Scrolls as little as needed to show a row and the next one.
  show(y) {
    const {table} = this;
    const height = table.querySelector("tbody tr")?.offsetHeight;
    const head = table.querySelector("thead")?.offsetHeight ?? 0;
    if (!height) return;
    const seen = table.clientHeight - head;
    table.scrollTop = Math.min(y * height, Math.max(table.scrollTop, (y + 2) * height - seen));
  }

  classOf(row, now, chosen) {
    if (row.reason) return now - row.since > GONE_MS / 2 ? "gone going" : "gone";
    return row.key === chosen ? "chosen" : "";
  }

  // Highlights a cell whose value has changed since it was drawn.
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

// `model`: {window, skip}: the rows of the window start at `skip`. `total`: the number of all rows.
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
      if (event.key === "Escape") {
        current.wanted = null;
        current.props.onChoose(null);
      }
      if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
      current.step(step);
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
    <regular-table ref=${element}></regular-table>
    ${props.empty && html`<div class="empty">${props.empty}</div>`}
  </div>`;
}
