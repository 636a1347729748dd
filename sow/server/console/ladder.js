// An order book as a ladder: the best prices of both sides, the spread, and the size at each price. It
// is for topics whose records are levels: side and price are part of the key. Each side is a live
// window over its best prices, updated at most ten times a second; of several instruments it shows that
// of the first record that matches the filter.

import {html, nextFrame, useEffect, useState} from "./parts.js";
import {read, topicPath} from "./server.js";
import {follow} from "./following.js";
import {Window} from "./window.js";
import * as format from "./format.js";

const DEPTH = 10;
const BIDS = ["bid", "buy", "b"];
const ASKS = ["ask", "sell", "a", "offer"];
const SIZES = ["/qty", "/size", "/quantity", "/amount"];

// The path of the size, for a topic whose records are levels of a book.
export function sizePath(fields, keys) {
  if (!keys.includes("/side") || !keys.includes("/price")) return null;
  return SIZES.find((path) => fields.includes(path)) ?? null;
}

// A size that is not a number is shown as it is, without a bar.
const measure = (value) => (Number.isFinite(value) ? Math.max(0, value) : 0);

const literal = (value) => (typeof value === "number" ? String(value) : `'${String(value).replace(/[\\']/g, "\\$&")}'`);

// The filter of one side of a record's instrument.
function sideOf(document, keys, filter, names) {
  const instrument = keys
    .filter((path) => path !== "/side" && path !== "/price")
    .map((path) => `${path} = ${literal(format.at(document, path))}`);
  const side = `/side IN (${names.map(literal).join(", ")})`;
  return [...(filter ? [`(${filter})`] : []), ...instrument, side].join(" AND ");
}

export function Ladder({name, keys, size, filter}) {
  const [book, setBook] = useState(null);
  useEffect(() => {
    let feeds = [];
    let isOver = false;
    const begin = async () => {
      const [first] = await read(topicPath(name, "/records"), {filter, top_n: 1});
      if (isOver || !first) return;
      const [bids, asks] = [new Window(), new Window()];
      const title = keys.filter((path) => path !== "/side" && path !== "/price").map((path) => format.at(first, path));
      const draw = () => isOver || setBook({bids: [...bids.rows], asks: [...asks.rows], title: title.join(" ")});
      const side = (window, names, order) => {
        const options = () => ({
          filter: sideOf(first, keys, filter, names),
          order_by: order,
          skip_n: 0,
          top_n: DEPTH,
          snapshot: true,
          live: true,
          positions: true,
          conflation: "100ms",
        });
        const take = (message) => {
          window.take(message, performance.now());
          nextFrame(draw);
        };
        return follow(name, options, take, () => {});
      };
      feeds = [side(bids, BIDS, "/price DESC"), side(asks, ASKS, "/price")];
    };
    begin().catch(() => {});
    return () => {
      isOver = true;
      for (const feed of feeds) feed.close();
    };
  }, [name, filter, size, keys.join()]);
  if (!book) return html`<div class="grid"><div class="empty">No level is there.</div></div>`;
  const most = Math.max(1e-12, ...[...book.bids, ...book.asks].map((row) => measure(format.at(row.document, size))));
  const [bid, ask] = [book.bids[0], book.asks[0]].map((row) => row && format.at(row.document, "/price"));
  const [asks, bids] = [[...book.asks].reverse(), book.bids];
  const prices = format.aligned([...asks, ...bids].map((row) => format.at(row.document, "/price")));
  const level = (row, side, price) => html`<tr class=${side} key=${`${side}${row.key}`}>
    <td class="number">${side === "bid" ? html`<${Bar} value=${format.at(row.document, size)} most=${most} />` : ""}</td>
    <td class="number price">${price}</td>
    <td class="number">${side === "ask" ? html`<${Bar} value=${format.at(row.document, size)} most=${most} />` : ""}</td>
  </tr>`;
  return html`<div class="panel scrolls ladder">
    <table class="plain" id="ladder">
      <caption class="padded"><h2>${book.title}</h2></caption>
      <thead>
        <tr><th scope="col" class="number bid">bid</th><th scope="col" class="number price">price</th><th scope="col" class="ask">ask</th></tr>
      </thead>
      <tbody>
        ${asks.map((row, place) => level(row, "ask", prices[place]))}
        <tr class="spread" key="spread">
          <td></td>
          <td class="number">${Number.isFinite(bid) && Number.isFinite(ask) ? `spread ${Number((ask - bid).toPrecision(6))}` : ""}</td>
          <td></td>
        </tr>
        ${bids.map((row, place) => level(row, "bid", prices[asks.length + place]))}
      </tbody>
    </table>
  </div>`;
}

function Bar({value, most}) {
  return html`<span class="bar-of" style=${{"--share": `${Math.max(1, (100 * measure(value)) / most)}%`}}>${format.cell(value)}</span>`;
}
