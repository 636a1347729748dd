// The content of a live window for the grid: rows in order, and for a moment those that have just left,
// at their old position, with the reason. Messages have positions (`at`), so nothing is sorted here. A
// row that goes because the window itself moves has not left: the server sends such removals before
// the group of the new rows, all others in a turn. Independent of the page.

export const GONE_MS = 1600;
const GONE_MAX = 8;

export class Window {
  constructor() {
    this.clear();
  }

  clear() {
    this.rows = [];
    this.gone = [];
    this.updates = 0;
    this.left = null;
    this.departed = 0;
    this.going = [];
    this.isStale = false; // the next group is the whole content
  }

  // Applies a message of the server; `now` is in milliseconds.
  take(message, now) {
    if (message.command === "sow" || message.command === "p") {
      this.put(message, now);
    } else if (message.command === "oof") {
      this.remove(message, now);
    } else if (message.command === "turn_end") {
      this.settle();
    } else if (message.command === "unsubscribed" && message.reason === "AUTHORIZATION") {
      this.clear(); // the user may not see it any more
    } else if (message.command === "gap") {
      this.isStale = true;
    } else if (message.command === "group_begin") {
      this.going = [];
      if (this.isStale) this.clear();
    }
  }

  put(message, now) {
    const isUpdate = message.command === "p";
    const at = message.at ?? this.rows.length;
    let row = this.rows[at];
    if (row?.key !== message.key) {
      const stood = this.rows.findIndex((one) => one.key === message.key);
      row = stood < 0 ? {key: message.key, entered: isUpdate ? now : 0} : this.rows.splice(stood, 1)[0];
      this.rows.splice(message.at ?? (stood < 0 ? at : stood), 0, row);
      if (stood < 0) this.gone = this.gone.filter((one) => one.key !== message.key);
    }
    row.document = message.record;
    if (isUpdate) this.updates += 1;
  }

  remove(message, now) {
    let at = message.at ?? -1;
    if (this.rows[at]?.key !== message.key) at = this.rows.findIndex((one) => one.key === message.key);
    if (at < 0) return;
    const [row] = this.rows.splice(at, 1);
    this.going.push({...row, at, last: message.record ?? row.document, reason: message.reason, since: now});
  }

  // The end of a turn: rows removed in it have left.
  settle() {
    if (!this.going.length) return;
    const {key, last: document, reason, since: at} = this.going.at(-1);
    this.left = {key, document, reason, at};
    this.departed += this.going.length;
    // A row that came back in the same turn has not left.
    const there = new Set(this.rows.map((row) => row.key));
    this.gone = [...this.gone, ...this.going.filter((one) => !there.has(one.key))].slice(-GONE_MAX);
    this.going = [];
  }

  // The rows to show, including those that are leaving.
  shown(now) {
    this.gone = this.gone.filter((one) => now - one.since < GONE_MS);
    if (!this.gone.length) return this.rows;
    const shown = [...this.rows];
    for (const one of this.gone) shown.splice(Math.min(one.at, shown.length), 0, one);
    return shown;
  }
}
