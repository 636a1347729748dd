// The live grid: a table of a moving window (regular-table draws only the rows in view). Changed cells
// are highlighted and fade; a row that leaves is struck out and fades, with the reason. Scrolling
// requests another range (`onView`). It is drawn by the scheduler of the page, and only while something
// moves. Pinned columns are the table's row headers: they stay when the others are scrolled. For screen
// readers it is a grid of rows with one selected; the table has the focus, whatever rows it draws.

import "./vendored/regular-table.js";
import {html, nextFrame, useEffect, useRef} from "./parts.js";
import {GONE_MS} from "./window.js";
import * as format from "./format.js";

const HOT_MS = 180;
const WARM_MS = 600;
const RESIZES = "rt-column-resize"; // what the table calls the edge of a head that is dragged
const RESIZED_MS = 50;

// Sets an attribute if it differs: screen readers announce each setting, and browsers compute its style again.
function mark(element, name, value) {
  const text = String(value);
  if ((element.getAttribute(name) ?? "") !== text) element.setAttribute(name, text);
}

class Drawing {
  constructor(element, props) {
    this.table = element;
    this.props = props;
    this.cells = new Map();
    this.marks = new WeakMap(); // the classes of cells, beside those that the table gives them
    this.until = 0;
    this.wanted = null; // the row to select once it is loaded
    this.sized = ""; // the columns and widths that the table has
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
    this.size();
    await this.table.draw({throttle: false});
    this.props.onDrawn?.();
    if (performance.now() < this.until) nextFrame(this.beat);
  }

  // The table numbers its columns, so other columns begin with other widths.
  size() {
    const {columns, layout} = this.props;
    const widths = columns.map((path) => layout.get(path)?.width);
    const sized = JSON.stringify([columns, widths]);
    if (sized === this.sized) return;
    this.sized = sized;
    this.table.resetAutoSize();
    this.table.restoreColumnSizes(Object.fromEntries(Object.entries(widths).filter(([, width]) => width)));
  }

  // The widths that the user has set by dragging; a double click takes one back.
  resized() {
    const {columns, layout, onLayout} = this.props;
    const sizes = this.table.saveColumnSizes();
    for (const [at, path] of columns.entries()) {
      const width = sizes[at] && Math.round(sizes[at]);
      if (layout.get(path)?.width !== width) onLayout(path, {width});
    }
  }

  row(y) {
    return this.rows[y - this.skip];
  }

  // The path of the column that a cell or a head is in.
  path(meta) {
    const {columns, pinned} = this.props;
    return meta && columns[meta.row_header_x ?? pinned + meta.x];
  }

  texts(path, y0, y1) {
    const column = [];
    for (let y = y0; y < y1; y += 1) {
      const row = this.row(y);
      column.push(row ? format.at(row.document, path) : "·");
    }
    return format.aligned(column, this.props.layout.get(path)?.digits);
  }

  async data(x0, y0, x1, y1) {
    const {model, columns, pinned, total, headings} = this.props;
    const now = performance.now();
    this.rows = model.window.shown(now);
    this.skip = model.skip;
    const count = Math.max(total, model.skip + this.rows.length);
    this.count = count;
    if (y1 > y0) this.props.onView(y0, Math.min(y1, count));
    if (this.wanted !== null && this.row(this.wanted)) this.choose(this.wanted);
    const shown = columns.slice(pinned + x0, pinned + x1);
    const [from, to] = [y0, Math.max(y0, Math.min(y1, count))];
    const heads = columns.slice(0, pinned).map((path) => this.texts(path, from, to));
    return {
      num_rows: count,
      num_columns: columns.length - pinned,
      column_headers: shown.map((path) => [headings(path)]),
      ...(pinned && {row_headers: Array.from({length: to - from}, (_, at) => heads.map((texts) => texts[at])), merge_headers: "none"}),
      data: shown.map((path) => this.texts(path, from, to)),
    };
  }

  style() {
    const now = performance.now();
    const {order, chosen, headings, layout} = this.props;
    const seen = new Map();
    const numeric = new Set();
    this.describe();
    for (const cell of this.table.querySelectorAll("tbody td, tbody th")) {
      const meta = this.table.getMeta(cell);
      const row = meta && this.row(meta.y);
      const path = this.path(meta);
      if (!row) {
        this.setMarks(cell, "");
        mark(cell.parentNode, "class", "");
        continue;
      }
      const value = format.at(row.document, path);
      const marks = row.reason ? [] : this.heat(row, path, value, now, seen);
      if (format.isNumber(value)) {
        marks.push("numeric");
        numeric.add(path);
      }
      if (format.isSpecial(value)) marks.push("special");
      this.setMarks(cell, marks.join(" "));
      const most = layout.get(path)?.width ? `${layout.get(path).width}px` : "";
      if (cell.style.maxWidth !== most) cell.style.maxWidth = most;
      if (cell === cell.parentNode.firstElementChild) {
        this.styleRow(cell.parentNode, row, meta.y, now, chosen);
        mark(cell, "title", row.reason || "");
      }
    }
    this.cells = seen;
    const ordered = order.replace(/ (ASC|DESC)$/i, "");
    for (const cell of this.table.querySelectorAll("thead th")) {
      const meta = this.table.getMeta(cell);
      const path = this.path(meta);
      // The table writes nothing above its row headers.
      if (meta?.row_header_x !== undefined) cell.firstElementChild.textContent = headings(path);
      cell.classList.toggle("numeric", numeric.has(path));
      cell.classList.toggle("ordered", ordered === path);
      cell.scope = "col";
      if (ordered === path) {
        cell.setAttribute("aria-sort", / DESC$/i.test(order) ? "descending" : "ascending");
      } else {
        cell.removeAttribute("aria-sort");
      }
    }
  }

  setMarks(cell, marks) {
    const before = this.marks.get(cell) ?? "";
    if (before === marks) return;
    this.marks.set(cell, marks);
    if (before) cell.classList.remove(...before.split(" "));
    if (marks) cell.classList.add(...marks.split(" "));
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
    mark(element, "class", this.classOf(row, now, chosen));
    mark(element, "id", row.reason ? "" : `record-${row.key}`);
    mark(element, "aria-rowindex", y + 2);
    mark(element, "aria-selected", row.key === chosen);
  }

  // Selects the row so many below; the first visible one is next if none is selected.
  step(by) {
    const {model, chosen} = this.props;
    const at = model.window.rows.findIndex((row) => row.key === chosen);
    const first = this.table.querySelector("tbody td, tbody th");
    const seen = (first && this.table.getMeta(first)?.y) ?? 0;
    const y = this.wanted ?? (at < 0 ? seen - Math.sign(by) : model.skip + at);
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

  // The marks of a cell whose value has changed since it was drawn.
  heat(row, path, value, now, seen) {
    const name = `${row.key} ${path}`;
    const before = this.cells.get(name);
    const shown = before ? {...before, value} : {value, at: row.entered || 0, way: ""};
    if (before && before.value !== value && typeof value !== "object") {
      shown.at = now;
      shown.way = !format.isNumber(value) ? "" : value > before.value ? "up" : "down";
    }
    seen.set(name, shown);
    const age = now - shown.at;
    if (!shown.at || age >= WARM_MS) return [];
    return [age < HOT_MS ? "hot" : "warm", ...(shown.way ? [shown.way] : [])];
  }
}

// `model`: {window, skip}: the rows of the window start at `skip`. `total`: the number of all rows. The
// first `pinned` columns stay; `layout` has widths and digits (columns.js).
export function Grid(props) {
  const element = useRef(null);
  const drawing = useRef(null);
  useEffect(() => {
    const table = element.current;
    drawing.current = new Drawing(table, props);
    props.model.touch = () => drawing.current.touch();
    let isResizing = false;
    const onDown = (event) => (isResizing = event.target.classList.contains(RESIZES));
    // The table takes the width a frame later. A click elsewhere is no end of a drag any more.
    const onUp = () => isResizing && setTimeout(() => {
      isResizing = false;
      drawing.current.resized();
    }, RESIZED_MS);
    const onClick = (event) => {
      if (isResizing) return;
      const meta = event.target.closest("td, th") && table.getMeta(event.target.closest("td, th"));
      if (!meta) return;
      const current = drawing.current;
      if (event.target.closest("thead")) current.props.onOrder(current.path(meta));
      else current.props.onChoose(current.row(meta.y)?.key ?? null);
    };
    const onKey = (event) => {
      const current = drawing.current;
      const page = Math.max(1, table.querySelectorAll("tbody tr").length - 2);
      const step = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity}[event.key];
      if (event.key === "Escape") {
        current.wanted = null;
        current.props.onChoose(null);
      }
      if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
      current.step(step);
      event.preventDefault();
    };
    table.addEventListener("mousedown", onDown, {capture: true});
    addEventListener("mouseup", onUp);
    table.addEventListener("click", onClick);
    table.addEventListener("keydown", onKey);
    drawing.current.touch();
    return () => {
      table.removeEventListener("mousedown", onDown, {capture: true});
      removeEventListener("mouseup", onUp);
      table.removeEventListener("click", onClick);
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
