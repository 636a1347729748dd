// A map of records with coordinates: a plane with lines of latitude and longitude, without tiles, which
// would come from another server. It is a live window of the topic, updated at most four times a
// second; a record that has moved is highlighted and fades. A click selects one.

import {html, nextFrame, useEffect, useMemo, useRef, useState} from "./parts.js";
import {follow} from "./following.js";
import {Window} from "./window.js";
import * as format from "./format.js";

const SHOWN_MAX = 2000;
const MOVED_MS = 2500;
const NEAR_PX = 12;
const MARGIN_PX = 34;
const SQUEEZE_MIN = 0.05; // as at 87 degrees
const NAMES = [
  ["/latitude", "/longitude"],
  ["/lat", "/lon"],
  ["/lat", "/lng"],
];

// The paths of a topic's coordinates, if it has any.
export function coordinates(fields) {
  return NAMES.find((pair) => pair.every((path) => fields.includes(path))) ?? null;
}

// Whether coordinates are valid: fields of a record may hold anything.
export function isOnEarth([lat, lon]) {
  return Number.isFinite(lat) && Number.isFinite(lon) && Math.abs(lat) <= 90 && Math.abs(lon) <= 180;
}

// A projection of these places onto a plane of this size: [lat, lon] to [x, y].
export function projection(places, width, height) {
  const [lats, lons] = [places.map(([lat]) => lat), places.map(([, lon]) => lon)];
  const [south, north] = [Math.min(...lats), Math.max(...lats)];
  const [west, east] = [Math.min(...lons), Math.max(...lons)];
  // At a pole all longitudes are one point, and the scale would be infinite.
  const squeeze = Math.max(SQUEEZE_MIN, Math.cos((((south + north) / 2) * Math.PI) / 180));
  const across = Math.max((east - west) * squeeze, 0.002);
  const up = Math.max(north - south, 0.002);
  const scale = Math.min((width - 2 * MARGIN_PX) / across, (height - 2 * MARGIN_PX) / up);
  const [middle, centre] = [(south + north) / 2, (west + east) / 2];
  return {
    at: ([lat, lon]) => [width / 2 + (lon - centre) * squeeze * scale, height / 2 - (lat - middle) * scale],
    back: (x, y) => [middle - (y - height / 2) / scale, centre + (x - width / 2) / scale / squeeze],
  };
}

// Round steps, so that there are some five lines.
function step(span) {
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
}

function lines(context, plane, width, height, colours) {
  const [north, west] = plane.back(0, 0);
  const [south, east] = plane.back(width, height);
  context.strokeStyle = colours.line;
  context.fillStyle = colours.faint;
  context.font = "10.5px system-ui, sans-serif";
  const each = step(Math.min(north - south, east - west));
  const digits = Math.max(0, -Math.floor(Math.log10(each)));
  context.beginPath();
  for (let lat = Math.ceil(south / each) * each; lat < north; lat += each) {
    const [, y] = plane.at([lat, west]);
    context.moveTo(0, y);
    context.lineTo(width, y);
    context.fillText(lat.toFixed(digits), 6, y - 4);
  }
  for (let lon = Math.ceil(west / each) * each; lon < east; lon += each) {
    const [x] = plane.at([south, lon]);
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.fillText(lon.toFixed(digits), x + 4, height - 6);
  }
  context.stroke();
}

export function TopicMap({name, filter, paths, chosen, onChoose}) {
  const canvas = useRef(null);
  const window = useMemo(() => new Window(), [name, filter]);
  const [count, setCount] = useState(0);
  const shown = useRef({});
  shown.current.chosen = chosen;

  useEffect(() => {
    const moved = new Map();
    let isOver = false;
    const placed = () =>
      window.rows
        .map((row) => ({key: row.key, place: paths.map((path) => format.at(row.document, path))}))
        .filter(({place}) => isOnEarth(place));
    const draw = () => {
      if (isOver || !canvas.current) return;
      const now = performance.now();
      const {clientWidth: width, clientHeight: height} = canvas.current;
      const dense = devicePixelRatio || 1;
      if (canvas.current.width !== Math.round(width * dense)) {
        canvas.current.width = Math.round(width * dense);
        canvas.current.height = Math.round(height * dense);
      }
      const style = getComputedStyle(canvas.current);
      const colour = (called) => style.getPropertyValue(called).trim();
      const colours = {line: colour("--line"), faint: colour("--faint")};
      const context = canvas.current.getContext("2d");
      context.setTransform(dense, 0, 0, dense, 0, 0);
      context.clearRect(0, 0, width, height);
      const rows = placed();
      shown.current.dots = [];
      if (rows.length) {
        const plane = projection(rows.map((row) => row.place), width, height);
        lines(context, plane, width, height, colours);
        for (const row of rows) {
          const [x, y] = plane.at(row.place);
          const age = now - (moved.get(row.key) ?? -Infinity);
          const isChosen = row.key === shown.current.chosen;
          context.globalAlpha = isChosen || age < MOVED_MS ? 1 : 0.55;
          context.fillStyle = colour(isChosen ? "--link" : age < MOVED_MS ? "--mark" : "--dim");
          context.beginPath();
          context.arc(x, y, isChosen ? 6 : age < MOVED_MS ? 3 + 2 * (1 - age / MOVED_MS) : 3, 0, 7);
          context.fill();
          shown.current.dots.push({x, y, key: row.key});
        }
        context.globalAlpha = 1;
      }
      setCount(rows.length);
      nextFrame(draw);
    };
    const take = (message) => {
      if (message.command === "p") moved.set(message.key, performance.now());
      if (message.command === "oof") moved.delete(message.key);
      window.take(message, performance.now());
    };
    const options = () => ({
      filter: filter || undefined,
      skip_n: 0,
      top_n: SHOWN_MAX,
      snapshot: true,
      live: true,
      positions: true,
      conflation: "250ms",
    });
    const feed = follow(name, options, take, () => {});
    nextFrame(draw);
    return () => {
      isOver = true;
      feed.close();
    };
  }, [name, filter, window, paths]);

  const choose = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const far = (dot) => Math.hypot(dot.x - x, dot.y - y);
    const nearest = (shown.current.dots ?? []).reduce((best, dot) => (!best || far(dot) < far(best) ? dot : best), null);
    onChoose(nearest && far(nearest) < NEAR_PX ? nearest.key : null);
  };
  return html`<div class="grid">
    <canvas class="map" id="map" ref=${canvas} role="img" aria-label=${`Where ${count} records of ${name} are; the table shows the same`} onClick=${choose}></canvas>
    ${!count && html`<div class="empty">No record says where it is.</div>`}
  </div>`;
}
