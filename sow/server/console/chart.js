// Lines over the last seconds (uPlot): all values of one moment are in one column, so an unchanged value
// is repeated. Older columns are dropped; it is drawn by the scheduler of the page.

import {html, nextFrame, useEffect, useRef} from "./parts.js";

const COLUMNS_MAX = 4000;

export class Series {
  // `count` lines over `span_s` seconds.
  constructor(count, span_s) {
    this.span_s = span_s;
    this.clear(count);
    this.touch = () => {};
  }

  clear(count = this.columns?.length - 1) {
    this.columns = Array.from({length: count + 1}, () => []);
  }

  // From `at` on (in seconds) line `which` has this value.
  put(at, which, value) {
    const [times] = this.columns;
    if (times.length && at <= times.at(-1)) {
      this.columns[which + 1][times.length - 1] = value;
    } else {
      times.push(at);
      for (const [place, line] of this.columns.slice(1).entries()) {
        line.push(place === which ? value : (line.at(-1) ?? null));
      }
    }
    this.touch();
  }

  // What the server has kept (`/rates`), up to `now`, before anything else.
  begin(now, {step_ms, in: taken, out: given}) {
    const [times, ...lines] = this.columns;
    const first = times[0] ?? Infinity;
    const at = taken.map((_, place) => now - ((taken.length - 1 - place) * step_ms) / 1000);
    const count = at.filter((time) => time < first).length;
    times.unshift(...at.slice(0, count));
    lines[0].unshift(...taken.slice(0, count));
    lines[1].unshift(...given.slice(0, count));
    this.touch();
  }

  // The columns to draw at `now`: the last values extend to it.
  drawn(now) {
    const [times] = this.columns;
    let old = 0;
    // One column before the visible range stays, for the line that comes in from there.
    while (old + 1 < times.length && times[old + 1] < now - this.span_s) old += 1;
    if (times.length - old > COLUMNS_MAX) old = times.length - COLUMNS_MAX;
    if (old) for (const line of this.columns) line.splice(0, old);
    if (!times.length) return this.columns;
    return this.columns.map((line, place) => [...line, place ? line.at(-1) : Math.max(now, times.at(-1))]);
  }
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function made(element, {labels, stepped, unit}) {
  const paths = stepped ? uPlot.paths.stepped({align: 1}) : uPlot.paths.linear();
  const axis = {
    stroke: colour("--dim"),
    grid: {stroke: colour("--line"), width: 1},
    ticks: {show: false},
    font: "11px system-ui, sans-serif",
  };
  return new uPlot(
    {
      width: Math.max(200, element.clientWidth),
      height: element.clientHeight,
      legend: {show: false},
      cursor: {show: false},
      padding: [10, 14, 0, 14],
      scales: {x: {time: false}},
      axes: [
        {...axis, size: 26, splits: everySixth, values: (plot, ticks) => ticks.map((tick) => ago(tick - plot.scales.x.max))},
        {...axis, size: 58, values: (_plot, ticks) => ticks.map((tick) => `${tick}${unit ?? ""}`)},
      ],
      series: [
        {},
        ...labels.map((label, place) => ({
          label,
          stroke: colour(`--series-${place + 1}`),
          width: place ? 2 : 1.2,
          paths,
          points: {show: false},
        })),
      ],
    },
    [[]],
    element,
  );
}

// Ticks at fixed positions, so that only the lines move.
function everySixth(_plot, _axis, from, to) {
  return Array.from({length: 7}, (_, place) => from + ((to - from) * place) / 6);
}

function ago(seconds) {
  const rounded = Math.round(seconds * 10) / 10;
  return rounded === 0 ? "now" : `${rounded} s`;
}

// `series` as lines called `labels`; `description` is for screen readers.
export function Chart({series, labels, stepped, unit, description, small}) {
  const element = useRef(null);
  useEffect(() => {
    let plot = made(element.current, {labels, stepped, unit});
    const draw = () => {
      if (!plot) return;
      const now = performance.now() / 1000;
      plot.batch(() => {
        plot.setData(series.drawn(now), true);
        plot.setScale("x", {min: now - series.span_s, max: now});
      });
      nextFrame(draw);
    };
    const remake = () => {
      plot.destroy();
      plot = made(element.current, {labels, stepped, unit});
    };
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const resized = new ResizeObserver(() => {
      const {clientWidth: width, clientHeight: height} = element.current;
      if (width && plot && width !== plot.width) plot.setSize({width, height});
    });
    scheme.addEventListener("change", remake);
    resized.observe(element.current);
    nextFrame(draw);
    return () => {
      scheme.removeEventListener("change", remake);
      resized.disconnect();
      plot.destroy();
      plot = null;
    };
  }, [series]);
  return html`<div class=${`chart${small ? " small" : ""}`} ref=${element} role="img" aria-label=${description}></div>`;
}
