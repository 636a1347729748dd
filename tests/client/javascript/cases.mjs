// What sow.js says and does line by line, against a socket and a clock that a test moves by hand. Each export is
// a case; `client` is the module. They run in Node and in a page (test_cases.py).

function equal(came, expected, what = "") {
  const [one, other] = [came, expected].map((value) => JSON.stringify(value));
  if (one !== other) throw new Error(`${what}\n  came ${one}\n  not  ${other}`);
}

async function refused(work, fields) {
  let error = null;
  try {
    await work();
  } catch (caught) {
    error = caught;
  }
  if (error === null) throw new Error(`not refused: ${work}`);
  if (error.name !== "SowError") throw error;
  for (const [name, value] of Object.entries(fields)) {
    if (value instanceof RegExp ? !value.test(error[name]) : error[name] !== value) {
      throw new Error(`${name} is ${error[name]}, not ${value}`);
    }
  }
  return error;
}

/** What has become of a promise, all said that there is to say. */
async function became(promise) {
  let found = "waits";
  promise.then((value) => (found = { value }), (error) => (found = { error: error.reason ?? String(error) }));
  await settled();
  return found;
}

const settled = () => new Promise((done) => setTimeout(done));

class Clock {
  now = 0;
  timers = [];

  after = (seconds, work) => {
    const timer = { due: this.now + seconds, work };
    this.timers.push(timer);
    return () => (this.timers = this.timers.filter((one) => one !== timer));
  };

  async advance(seconds) {
    const end = this.now + seconds;
    for (;;) {
      await settled();
      const next = this.timers.filter((one) => one.due <= end).sort((one, other) => one.due - other.due)[0];
      if (next === undefined) break;
      this.timers = this.timers.filter((one) => one !== next);
      this.now = next.due;
      next.work();
    }
    this.now = end;
  }
}

/** Makes sockets that are driven by the test. */
function network() {
  const sockets = [];
  class Socket {
    sent = [];
    closed = false;

    constructor(url) {
      this.url = url;
      sockets.push(this);
    }

    send(text) {
      const [head, ...bodies] = text.split("\n");
      this.sent.push({ ...JSON.parse(head), ...(bodies.length > 0 ? { bodies } : {}) });
    }

    close() {
      this.closed = true;
    }

    open() {
      this.onopen({});
    }

    say(...lines) {
      this.data(lines.map((line) => JSON.stringify(line)).join("\n"));
    }

    data(text) {
      this.onmessage?.({ data: new TextEncoder().encode(text).buffer });
    }

    end(code = 1006, reason = "") {
      this.onclose?.({ code, reason });
    }

    welcome(more = {}) {
      this.open();
      this.say({ c: "ack", cid: "logon", a: "processed", status: "success", session: "secret", ...more });
    }

    /** The newest command of this name that was sent. */
    last(command) {
      return this.sent.findLast((line) => line.c === command);
    }

    agree(command, more = {}, kinds = null) {
      const { cid, a = "processed" } = this.last(command);
      for (const kind of kinds ?? a.split(",")) this.say({ c: "ack", cid, a: kind, status: "success", ...more });
    }
  }
  return { sockets, Socket };
}

async function connected(client, options = {}) {
  const { sockets, Socket } = network();
  const clock = new Clock();
  const states = [];
  const coming = client.connect({
    url: "http://sow.example:8080",
    WebSocket: Socket,
    after: clock.after,
    random: () => 0,
    ...options,
  });
  await settled();
  sockets[0].welcome();
  const sow = await coming;
  sow.onstate = ({ state, reason }) => states.push(reason ? `${state}: ${reason}` : state);
  const newest = () => sockets.at(-1);
  return { sow, clock, sockets, states, newest };
}

async function followed(world, topic = "orders", options = {}, name = "f1") {
  const coming = world.sow.subscribe(topic, options);
  await settled();
  world.newest().agree(options.snapshot ? "sow_and_subscribe" : "subscribe", { s: name }, ["processed"]);
  return coming;
}

async function lived(world, records = [], options = {}, name = "f1") {
  const coming = world.sow.live("orders", options);
  await settled();
  world.newest().agree("sow_and_delta_subscribe", { s: name });
  group(world.newest(), records, name);
  return coming;
}

function group(socket, records, name = "f1") {
  const rows = records.map((d, at) => ({ c: "sow", s: name, t: "orders", k: String(d.id), d, at }));
  socket.say({ c: "group_begin", s: name }, ...rows, { c: "group_end", s: name, bm: "9" });
}

const p = (d, more = {}) => ({ c: "p", s: "f1", t: "orders", k: String(d.id), d, bm: "1", ...more });
const oof = (id, more = {}) => ({ c: "oof", s: "f1", t: "orders", k: String(id), reason: "match", d: { id }, ...more });

// Addresses and logons.

export async function addresses(client) {
  const called = async (url) => {
    const { sockets, Socket } = network();
    const clock = new Clock();
    const coming = client.connect({ url, WebSocket: Socket, after: clock.after });
    coming.catch(() => {});
    await settled();
    return sockets.length > 0 ? sockets[0].url : coming;
  };
  equal(await called("http://h:8080"), "ws://h:8080/v1/ws");
  equal(await called("http://h:8080/"), "ws://h:8080/v1/ws");
  equal(await called("https://h/desk/"), "wss://h/desk/v1/ws");
  equal(await called("h:8080/desk?x=1#y"), "ws://h:8080/desk/v1/ws");
  equal(await called("wss://h"), "wss://h/v1/ws");
  await refused(() => called("ftp://h"), { reason: "bad request", message: /ftp/ });
  await refused(() => called("http://["), { reason: "bad request" });
  const error = await refused(() => called("http://ann:hush@h"), { reason: "bad request" });
  if (/hush/.test(error.message + error.stack)) throw new Error("the password shows");
}

export async function a_logon_shows_who_it_is(client) {
  const said = async (options) => {
    const world = await connected(client, options);
    const { c, cid, ...logon } = world.sockets[0].sent[0];
    equal([c, cid], ["logon", "logon"]);
    return logon;
  };
  equal(await said({}), { client: "sow.js" });
  equal(await said({ name: "grid", token: "t" }), { client: "grid", token: "t" });
  equal(await said({ user: "ann", password: "hush", as: "bob" }), { client: "sow.js", user: "ann", password: "hush", as: "bob" });
  equal(await said({ token: async () => "made" }), { client: "sow.js", token: "made" });
  const bad = (options) => client.connect({ url: "http://h", WebSocket: network().Socket, ...options });
  await refused(() => bad({ token: "t", user: "ann" }), { reason: "bad request" });
  await refused(() => bad({ user: "ann" }), { reason: "bad request" });
  await refused(() => bad({ usr: "ann" }), { message: /no option usr/ });
}

export async function a_token_is_requested_for_each_connection(client) {
  let number = 0;
  const world = await connected(client, { token: () => `t${++number}` });
  world.newest().end();
  await world.clock.advance(1);
  world.newest().open();
  equal([world.sockets[0].sent[0].token, world.newest().sent[0].token], ["t1", "t2"]);
}

export async function a_refused_logon_reports_why(client) {
  const { sockets, Socket } = network();
  const clock = new Clock();
  const coming = client.connect({ url: "http://h", WebSocket: Socket, after: clock.after });
  coming.catch(() => {});
  await settled();
  sockets[0].open();
  sockets[0].say({ c: "ack", cid: "logon", a: "processed", status: "failure", reason: "auth failure", detail: "nobody is called so" });
  await refused(() => coming, { reason: "auth failure", message: "nobody is called so" });
  await clock.advance(1000);
  equal([sockets.length, sockets[0].closed, clock.timers.length], [1, true, 0]);
}

export async function who_answers_nothing_or_nonsense_is_no_server(client) {
  for (const happen of [
    (socket) => socket.end(),
    (socket) => (socket.open(), socket.data("HTTP/1.1 400")),
    async (socket, clock) => (socket.open(), clock.advance(10)),
  ]) {
    const { sockets, Socket } = network();
    const clock = new Clock();
    const coming = client.connect({ url: "http://h", WebSocket: Socket, after: clock.after });
    coming.catch(() => {});
    await settled();
    await happen(sockets[0], clock);
    await refused(() => coming, { reason: "unreachable", message: /ws:\/\/h\/v1\/ws/ });
  }
}

export async function without_a_websocket_the_sentence_says_what_to_do(client) {
  const own = globalThis.WebSocket;
  delete globalThis.WebSocket;
  try {
    await refused(() => client.connect({ url: "http://h" }), { message: /connect\({WebSocket}\)/ });
  } finally {
    if (own !== undefined) Object.defineProperty(globalThis, "WebSocket", { value: own, configurable: true, writable: true });
  }
}

export async function frames_may_follow_the_ack_without_a_pause(client) {
  const world = await connected(client);
  await followed(world);
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ resumed: true });
  world.newest().say(p({ id: 1 }), p({ id: 2 }));
  world.newest().end();
  await world.clock.advance(1);
  world.newest().open();
  // One line was the ack of `subscribe`.
  equal(world.newest().sent[0].seen, 3);
}

// Coming back.

export async function waits_grow_and_are_partly_chance(client) {
  for (const [chance, expected] of [
    [0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]],
    [1, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]],
  ]) {
    const world = await connected(client, { random: () => chance });
    const waits = [];
    for (const _ of expected) {
      const before = world.clock.now;
      const count = world.sockets.length;
      world.newest().end();
      while (world.sockets.length === count) {
        await settled();
        await world.clock.advance(Math.min(...world.clock.timers.map((one) => one.due)) - world.clock.now);
      }
      waits.push(Number((world.clock.now - before).toFixed(6)));
    }
    equal(waits, expected);
  }
}

export async function who_lets_in_and_drops_at_once_is_come_back_to_ever_later(client) {
  const world = await connected(client);
  const wait = async () => {
    const before = world.clock.now;
    const count = world.sockets.length;
    world.newest().end();
    while (world.sockets.length === count) {
      await settled();
      await world.clock.advance(Math.min(...world.clock.timers.map((one) => one.due)) - world.clock.now);
    }
    world.newest().welcome();
    await settled();
    return Number((world.clock.now - before).toFixed(6));
  };
  const waits = [];
  for (let turn = 0; turn < 8; turn += 1) waits.push(await wait());
  equal(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]);
  await world.clock.advance(4.9);
  equal(await wait(), 5, "it was not there for long");
  await world.clock.advance(5);
  equal([await wait(), await wait()], [0.1, 0.2], "it was there for long");
}

export async function it_gives_up_as_configured(client) {
  const world = await connected(client, { retry: { give_up_s: 1 } });
  const query = world.sow.query("orders");
  query.catch(() => {});
  world.newest().end();
  for (let turn = 0; turn < 10 && world.sow.state !== "closed"; turn += 1) {
    await world.clock.advance(1);
    world.newest().end();
    await settled();
  }
  equal(world.sow.state, "closed");
  await refused(() => query, { reason: "unreachable" });
  await refused(() => world.sow.query("orders"), { reason: "disconnected" });
}

export async function what_was_on_its_way_is_found_by_a_flush(client) {
  const world = await connected(client);
  const publish = world.sow.publish("orders", { id: 1 });
  const query = world.sow.query("orders");
  publish.catch(() => {});
  const [first] = world.sockets;
  const { cid } = first.last("sow");
  first.say({ c: "ack", cid, a: "processed", status: "success", s: "q1" }, { c: "sow", s: "q1", t: "orders", k: "1", d: { id: 1 } });
  first.end();
  await world.clock.advance(1);
  world.newest().welcome({ resumed: true });
  equal(await became(publish), "waits");
  equal(world.newest().sent.map((line) => line.c), ["logon", "flush"]);
  world.newest().agree("flush");
  await refused(() => publish, { reason: "disconnected", message: /may or may not/ });
  equal(world.newest().sent.map((line) => line.c), ["logon", "flush", "sow"]);
  // The first answer arrives all the same: it is not mixed with the second.
  world.newest().say({ c: "sow", s: "q1", t: "orders", k: "2", d: { id: 2 } });
  const again = world.newest().last("sow").cid;
  world.newest().say(
    { c: "ack", cid: again, a: "processed", status: "success", s: "q2" },
    { c: "sow", s: "q2", t: "orders", k: "3", d: { id: 3 } },
    { c: "group_end", s: "q2", bm: "7" },
    { c: "ack", cid: again, a: "completed", status: "success", s: "q2", matches: 5 },
  );
  const answer = await query;
  equal([answer, answer.matches, answer.bookmark, answer.order], [[{ id: 3 }], 5, "7", ["3"]]);
}

export async function what_is_answered_before_the_flush_is_not_sent_again(client) {
  const world = await connected(client);
  const publish = world.sow.publish("orders", { id: 1 });
  const { cid } = world.newest().last("publish");
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ resumed: true });
  world.newest().say({ c: "ack", cid, a: "persisted", status: "success", bm: "8" });
  world.newest().agree("flush");
  equal(await publish, "8");
}

export async function what_was_sent_twice_is_followed_once(client) {
  const world = await connected(client);
  const coming = world.sow.subscribe("orders");
  const { cid } = world.newest().last("subscribe");
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ resumed: true });
  world.newest().agree("flush");
  world.newest().agree("subscribe", { s: "f2" });
  await coming;
  world.newest().say({ c: "ack", cid, a: "processed", status: "success", s: "f1" });
  equal(world.newest().last("unsubscribe").s, "f1");
}

export async function what_is_sent_again_after_a_flush_is_not_sent_again_after_the_next_one(client) {
  const world = await connected(client);
  const sub = await followed(world, "orders", { snapshot: true });
  sub.replace({ filter: "/px > 2" }).catch(() => {});
  const flushes = [];
  for (let time = 0; time < 2; time += 1) {
    world.newest().end();
    await world.clock.advance(1);
    world.newest().welcome({ resumed: true });
    flushes.push(world.newest().last("flush").cid);
  }
  for (const cid of flushes) world.newest().say({ c: "ack", cid, a: "processed", status: "success" });
  equal(world.newest().sent.map((line) => line.c), ["logon", "flush", "sow_and_subscribe"]);
}

export async function a_replacement_that_is_answered_twice_is_followed_on(client) {
  const world = await connected(client);
  const sub = await followed(world, "orders", { snapshot: true });
  const replaced = sub.replace({ filter: "/px > 2" });
  const { cid } = world.newest().last("sow_and_subscribe");
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ resumed: true });
  world.newest().agree("flush");
  world.newest().agree("sow_and_subscribe", { s: "f1" });
  await replaced;
  world.newest().say({ c: "ack", cid, a: "processed", status: "success", s: "f1" }, p({ id: 1 }));
  equal([world.newest().last("unsubscribe"), (await sub.next()).value.key], [undefined, "1"]);
}

export async function a_session_that_is_gone_takes_its_names_along(client) {
  const world = await connected(client);
  const kept = await followed(world, "orders", { snapshot: true }, "f1");
  const closed = await followed(world, "quotes", {}, "f2");
  world.newest().end();
  closed.close(); // cannot be said now, and means nothing to another session, which may have an f2 too
  await world.clock.advance(1);
  world.newest().welcome({ session: "other", resumed: false, reason: "expired" });
  world.newest().agree("sow_and_subscribe", { s: "f2" });
  await settled();
  equal(world.newest().sent.map((line) => [line.c, line.s]), [["logon", undefined], ["sow_and_subscribe", undefined]]);
  equal([(await kept.next()).value, kept.name, kept.gaps], [{ command: "gap", reason: "expired", exact: true }, "f2", 1]);
}

export async function a_replacement_waits_for_the_name_after_a_gap(client) {
  const world = await connected(client);
  const sub = await followed(world, "orders", { snapshot: true, filter: "/px > 1" });
  const replaced = sub.replace({ filter: "/px > 2", select: null });
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ session: "other", resumed: false, reason: "expired" });
  equal(world.newest().sent.map((line) => line.c), ["logon", "sow_and_subscribe"]);
  equal(world.newest().last("sow_and_subscribe").filter, "/px > 1");
  world.newest().agree("sow_and_subscribe", { s: "f7" });
  const { c, s, filter, opts } = world.newest().sent.at(-1);
  equal([c, s, filter, opts], ["sow_and_subscribe", "f7", "/px > 2", "replace"]);
  equal(sub.options.filter, "/px > 1");
  world.newest().agree("sow_and_subscribe", { s: "f7" });
  await replaced;
  equal(sub.options, { snapshot: true, filter: "/px > 2" });
}

export async function a_refused_replacement_changes_nothing(client) {
  const world = await connected(client);
  const sub = await followed(world, "orders", { filter: "/px > 1" });
  const replaced = sub.replace({ filter: "/px >" });
  replaced.catch(() => {});
  const { cid } = world.newest().sent.at(-1);
  world.newest().say({ c: "ack", cid, a: "processed", status: "failure", reason: "bad filter", detail: "no", position: 5, expected: "a path" });
  await refused(() => replaced, { reason: "bad filter", position: 5, expected: "a path" });
  equal(sub.options, { filter: "/px > 1" });
}

export async function a_server_that_is_silent_is_left(client) {
  const world = await connected(client);
  await world.clock.advance(20);
  equal(world.newest().sent.map((line) => line.c), ["logon"], "it has just sent");
  await world.clock.advance(20);
  equal(world.newest().sent.map((line) => line.c), ["logon", "heartbeat"]);
  world.newest().say({ c: "heartbeat", conflated: 812, dropped: 3 });
  equal([world.sow.conflated, world.sow.dropped], [812, 3]);
  await world.clock.advance(40);
  equal([world.sockets.length, world.sow.state], [1, "connected"]);
  await world.clock.advance(20.1);
  equal([world.sockets.length, world.sockets[0].closed, world.states], [2, true, ["reconnecting: the server is silent"]]);
}

export async function who_is_closed_by_the_server_stays_closed(client) {
  for (const [end, reason, state] of [
    [(socket) => (socket.say({ c: "close", reason: "slow client" }), socket.end(1008)), "closed", "closed: the server has closed the session: slow client"],
    [(socket) => (socket.say({ c: "close", reason: "x" }), socket.end(4401)), "auth failure", null],
  ]) {
    const world = await connected(client);
    const sub = await followed(world);
    const next = sub.next();
    next.catch(() => {});
    end(world.newest());
    await refused(() => next, { reason });
    await world.clock.advance(1000);
    equal([world.sockets.length, world.sow.state], [1, "closed"]);
    if (state !== null) equal(world.states, [state]);
  }
}

export async function a_logon_that_is_refused_on_the_way_back_ends_it_or_waits(client) {
  for (const [reason, closed] of [["auth failure", true], ["too many logons", false], ["replaying", false], ["no quorum", false]]) {
    const world = await connected(client);
    world.newest().end();
    await world.clock.advance(1);
    world.newest().open();
    world.newest().say({ c: "ack", cid: "logon", a: "processed", status: "failure", reason, detail: "no" });
    await world.clock.advance(5);
    equal([world.sow.state === "closed", world.sockets.length], [closed, closed ? 2 : 3], reason);
  }
}

export async function a_count_that_the_server_does_not_have_starts_again(client) {
  const world = await connected(client);
  await followed(world);
  world.newest().end();
  await world.clock.advance(1);
  world.newest().open();
  equal(world.newest().sent[0].session, "secret");
  world.newest().say({ c: "ack", cid: "logon", a: "processed", status: "failure", reason: "invalid seen", detail: "no" });
  await world.clock.advance(5);
  world.newest().open();
  equal(world.newest().sent[0].session, undefined);
}

export async function a_pause_lets_go_and_goes_on(client) {
  const world = await connected(client);
  const sub = await followed(world);
  world.newest().say(p({ id: 1 }));
  const [before] = world.sockets;
  world.sow.pause();
  equal(before.closed, true);
  before.say(p({ id: 2 })); // too late: it is not counted, so it comes again
  before.end();
  const query = world.sow.query("orders");
  await world.clock.advance(1000);
  equal([world.sockets.length, world.sow.state, await became(query)], [1, "paused", "waits"]);
  world.sow.resume();
  await settled();
  world.newest().welcome({ resumed: true });
  const [logon, sent] = world.newest().sent;
  equal([logon.session, logon.seen, sent.c], ["secret", 2, "sow"]);
  world.newest().say(p({ id: 2 }));
  equal([(await sub.next()).value.record, (await sub.next()).value.record], [{ id: 1 }, { id: 2 }]);
  equal(world.states, ["paused", "reconnecting", "connected"]);
}

export async function a_pause_while_it_reconnects_takes_effect(client) {
  const world = await connected(client);
  await followed(world);
  world.newest().end();
  await world.clock.advance(0.1);
  world.sow.pause();
  world.newest().open();
  equal(world.newest().closed, true);
  await world.clock.advance(100);
  equal([world.sockets.length, world.sow.state], [2, "paused"]);
  world.sow.close();
  world.sow.resume();
  await world.clock.advance(100);
  equal([world.sockets.length, world.sow.state], [2, "closed"]);
}

export async function a_bookmark_goes_on_from_where_it_is(client) {
  for (const [bookmark, expected] of [
    ["now", "7"],
    ["3", "7"],
    ["[1:]", "(7:]"],
    ["(1:99)", "(7:99)"],
    ["[20261121T093000Z:2026-11-21T09:31:00]", "(7:2026-11-21T09:31:00]"],
  ]) {
    const world = await connected(client);
    await followed(world, "orders", { bookmark });
    world.newest().say(p({ id: 1 }, { bm: "7" }));
    world.newest().end();
    await world.clock.advance(1);
    world.newest().welcome({ session: "other", resumed: false, reason: "expired" });
    equal(world.newest().last("subscribe").bm, expected);
  }
}

export async function the_past_is_sent_once(client) {
  const world = await connected(client);
  const log = "00000000000000ff";
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ session: "other", resumed: false, log });
  const options = { snapshot: true, as_of: 3, top_n: 5, oof: true };
  const sub = await followed(world, "orders", options);
  equal(world.newest().last("sow_and_subscribe").as_of, `${log}-3`);
  world.newest().say(p({ id: 1 }, { bm: "7" }));
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ session: "third", resumed: false, log });
  const { bm, as_of, top_n, opts } = world.newest().last("subscribe");
  equal([bm, as_of, top_n, opts], [`${log}-7`, undefined, undefined, "oof"]);
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  await sub.next();
  equal((await sub.next()).value, { command: "gap", reason: "", exact: true });
}

export async function a_view_of_the_past_begins_again_with_the_present(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }], { as_of: "2026-11-21" });
  equal(world.newest().last("sow_and_delta_subscribe").as_of, "2026-11-21");
  const replaced = live.replace({ filter: "/id > 0" });
  equal(world.newest().last("sow_and_delta_subscribe").as_of, undefined);
  world.newest().agree("sow_and_delta_subscribe", { s: "f1" });
  group(world.newest(), [{ id: 1 }]);
  await replaced;
  const other = await lived(world, [{ id: 1 }], { as_of: "2026-11-21" }, "f2");
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ session: "other", resumed: false, reason: "expired" });
  const lines = world.newest().sent.filter((line) => line.c === "sow_and_delta_subscribe");
  equal(lines.map((line) => line.as_of ?? null), [null, null]);
  equal([...other.keys()], ["1"]);
}

/** What `work` does with an HTTP of our own, which answers with a status and a text. */
async function fetched(status, text, work) {
  const before = globalThis.fetch;
  const asked = [];
  globalThis.fetch = async (url, { headers }) => {
    asked.push([url, headers.Authorization ?? null]);
    if (status === 0) throw new TypeError("no network");
    return { ok: status < 400, text: async () => text };
  };
  try {
    return [await work(), asked];
  } finally {
    globalThis.fetch = before;
  }
}

export async function events_are_read_over_http(client) {
  const found = [{ seq: 4, ts: "t", author: "ann", d: { id: 1 } }];
  const text = JSON.stringify(found);
  const base = "http://sow.example:8080/v1/topics/a%2Fb/records/key%3DIBM%2C1/events?";
  for (const [credentials, expected] of [
    [{}, null],
    [{ token: () => "t" }, "Bearer t"],
    [{ user: "ann", password: "hüsh" }, "Basic YW5uOmjDvHNo"],
  ]) {
    const { sow } = await connected(client, credentials);
    const [came, asked] = await fetched(200, text, () => sow.events("a/b", "key=IBM,1", { from: 2, to: null }));
    equal([came, asked], [found, [[`${base}from=2`, expected]]]);
  }
  const large = await connected(client, { exact: true });
  const [[event]] = await fetched(200, '[{"seq":1,"d":{"id":12345678901234567890}}]', () => large.sow.events("t", "1"));
  equal(String(event.d.id), "12345678901234567890");
}

export async function what_speaks_against_events_is_an_error(client) {
  const { sow } = await connected(client);
  const refusal = JSON.stringify({ reason: "invalid topic", detail: "t is no series" });
  await refused(() => fetched(400, refusal, () => sow.events("t", "1")), { reason: "invalid topic", message: /no series/ });
  await refused(() => fetched(502, "<html>", () => sow.events("t", "1")), { reason: "unreachable" });
  await refused(() => fetched(0, "", () => sow.events("t", "1")), { reason: "unreachable", message: /no network/ });
  await refused(() => sow.events("t", "1", { form: 1 }), { message: /no option form; it takes from, to, limit/ });
  const acting = await connected(client, { token: "t", as: "bob" });
  await refused(() => acting.sow.events("t", "1"), { reason: "bad request", message: /nobody acts for bob/ });
  sow.close();
  await refused(() => sow.events("t", "1"), { reason: "disconnected" });
}

// Hostile, half, late, twice.

export async function half_a_frame_ends_it_with_a_sentence(client) {
  const world = await connected(client);
  const sub = await followed(world);
  const next = sub.next();
  next.catch(() => {});
  world.newest().data('{"c":"p","s":"f1"');
  await refused(() => next, { reason: "unreachable", message: /does not speak SOW/ });
  await world.clock.advance(1000);
  equal([world.sockets.length, world.sow.state], [1, "closed"]);
}

export async function what_means_nothing_is_passed_over(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }]);
  world.newest().data(
    '\n{"c":"p","s":"nobody","k":"1","d":{}}\n{"c":"later","s":"f1"}\n{"c":"ack","cid":"99","a":"processed","status":"success"}\n{}\n',
  );
  world.newest().say(p({ id: 2 }), p({ id: 2 }), oof(3));
  equal([live.rows, world.sow.state], [[{ id: 1 }, { id: 2 }], "connected"]);
}

export async function names_of_prototypes_are_names(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }]);
  world.newest().data('{"c":"p","s":"f1","t":"orders","k":"1","delta":true,"d":{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}}');
  equal({}.polluted, undefined);
  equal(Object.keys(live.get("1")), ["id", "__proto__", "constructor"]);
}

export async function an_answer_that_comes_twice_counts_once(client) {
  const world = await connected(client);
  const publish = world.sow.publish("orders", { id: 1 });
  world.newest().agree("publish", { bm: "1" });
  world.newest().agree("publish", { bm: "2" });
  equal(await publish, "1");
}

export async function who_is_closed_before_it_is_open_is_unsubscribed(client) {
  const world = await connected(client);
  const opening = world.sow.live("orders");
  opening.catch(() => {});
  const sub = await followed(world, "quotes", {}, "f3");
  sub.close();
  equal(world.newest().last("unsubscribe").s, "f3");
  world.newest().say(p({ id: 1 }, { s: "f3" }));
  equal(await sub.next(), { done: true });
  world.sow.close();
  await refused(() => opening, { reason: "disconnected" });
}

export async function messages_that_nobody_reads_are_bounded(client) {
  const world = await connected(client);
  const sub = await followed(world);
  const lines = Array.from({ length: 1000 }, (_, id) => p({ id }));
  for (let turn = 0; turn < 101; turn += 1) world.newest().say(...lines);
  equal(world.newest().last("unsubscribe").s, "f1");
  let count = 0;
  const error = await refused(async () => {
    for await (const _ of sub) count += 1;
  }, { reason: "not read" });
  equal([count, /orders/.test(error.message)], [100_001, true]);
}

// What is published.

export async function documents_are_written_by_value(client) {
  const world = await connected(client);
  const body = async (message) => {
    world.sow.publish("orders", message).catch(() => {});
    await settled();
    return world.newest().sent.at(-1).bodies[0];
  };
  const when = new Date(0);
  equal(await body({ a: 12345678901234567890n, b: when, c: undefined, d: [null, -0, 1e21], é: 'x\n"' }),
    '{"a":12345678901234567890,"b":"1970-01-01T00:00:00.000Z","d":[null,0,1e+21],"é":"x\\n\\""}');
  equal(await body('{"raw":\n1.10}'), '{"raw": 1.10}');
  equal(await body("35=8;"), "35=8;");
  const round = { id: 1 };
  round.round = round;
  for (const [value, message] of [
    [{ a: [1, NaN] }, /message 0: \/a\[1\] is NaN/],
    [{ a: { b: Infinity } }, /\/a\/b is Infinity/],
    [{ a: () => 1 }, /\/a is function/],
    [[{ id: 1 }, { a: [undefined] }], /message 1: \/a\[0\] is undefined/],
    [{ a: new Map() }, /\/a is a Map/],
    [{ a: new Uint8Array(1) }, /\/a is a Uint8Array/],
    [{ a: "\ud800" }, /half of a surrogate/],
    ["\udc00", /half of a surrogate/],
    [round, /contains itself/],
    [[{ id: 1 }, new Uint8Array(1)], /some messages are bytes/],
  ]) {
    const before = world.newest().sent.length;
    await refused(() => world.sow.publish("orders", value), { reason: "bad message", message });
    equal(world.newest().sent.length, before, "nothing was sent");
  }
}

export async function publishes_go_in_frames(client) {
  const world = await connected(client);
  const publish = world.sow.publish("orders", Array.from({ length: 2500 }, (_, id) => ({ id })), { delta: true, expires_s: 5 });
  publish.catch(() => {});
  await settled();
  const frames = world.newest().sent.slice(1);
  equal(frames.map(({ c, n, x, a, bodies }) => [c, n, x, a, bodies.length]), [
    ["delta_publish", 1000, 5, "persisted", 1000],
    ["delta_publish", 1000, 5, "persisted", 1000],
    ["delta_publish", 500, 5, "persisted", 500],
  ]);
  const { cid } = frames[1];
  world.newest().say({ c: "ack", cid, a: "persisted", status: "failure", reason: "bad message", detail: "no", index: 7 });
  await refused(() => publish, { index: 1007 });
}

export async function texts_with_line_breaks_go_alone(client) {
  const world = await connected(client);
  const publish = world.sow.publish("notes", ["a", "b\nc", "d", "e"]);
  await settled();
  equal(world.newest().sent.slice(1).map(({ n, d, bodies }) => [n, d, bodies]), [
    [1, undefined, ["a"]],
    [undefined, "b\nc", undefined],
    [2, undefined, ["d", "e"]],
  ].map((row) => row.map((value) => value ?? null)));
  world.newest().sent.slice(1).forEach(({ cid }, at) => world.newest().say({ c: "ack", cid, a: "persisted", status: "success", bm: String(at) }));
  equal([await publish, await world.sow.publish("notes", [])], ["2", ""]);
}

export async function bytes_go_as_base64(client) {
  const world = await connected(client);
  world.sow.publish("blobs", [Uint8Array.from([0, 255]), new Uint8Array(20000).buffer], { key: "k" }).catch(() => {});
  await settled();
  const { enc, k, bodies } = world.newest().sent.at(-1);
  equal([enc, k, bodies[0], bodies[1].length], ["base64", "k", "AP8=", 26668]);
}

export async function questions_are_lines(client) {
  const world = await connected(client);
  world.sow.query("orders", { filter: "/a", keys: ["1", "2"], order_by: "/a", top_n: 3, skip_n: 0, select: ["/a", "/b"], projection: ["SUM(/a) AS /a", "F(/b,1) AS /b"], grouping: ["/c"], as_of: "7" }).catch(() => {});
  world.sow.subscribe("orders", { snapshot: true, delta: true, oof: true, live: true, positions: true, top_n: 5, no_empties: true, conflation: "1s", conflation_key: ["/a", "/b"] }).catch(() => {});
  await settled();
  equal(world.newest().sent.slice(1), [
    { c: "sow", t: "orders", filter: "/a", keys: "1,2", order_by: "/a", top_n: 3, skip_n: 0, select: "/a,/b", projection: "[SUM(/a) AS /a,F(/b,1) AS /b]", grouping: "[/c]", as_of: "7", cid: "1", a: "processed,completed" },
    { c: "sow_and_delta_subscribe", t: "orders", top_n: 5, opts: "oof,no_empties,live,positions,conflation=1s,conflation_key=[/a,/b]", cid: "2", a: "processed" },
  ]);
}

// Live views.

export async function half_a_snapshot_or_turn_is_never_seen(client) {
  const world = await connected(client);
  const window = await lived(world, [{ id: 1 }, { id: 2 }], { order_by: "/px", top_n: 2 });
  const seen = [];
  window.onchange = (changes) => seen.push([changes.map(({ key }) => key), window.rows.map(({ id }) => id)]);
  world.newest().say(oof(1, { at: 0 }));
  equal([window.rows, seen], [[{ id: 1 }, { id: 2 }], []]);
  world.newest().say(p({ id: 3 }, { at: 0 }), { c: "turn_end", s: "f1", bm: "2" });
  equal(seen, [[["1", "3"], [3, 2]]]);
  equal([window.order, [...window.keys()].sort()], [["3", "2"], ["2", "3"]]);
  world.newest().say(p({ id: 2, x: 1 }, { at: 0 }), { c: "turn_end", s: "f1" });
  equal(window.order, ["2", "3"]);
}

export async function a_gap_is_made_up_for_at_once(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }, { id: 2 }]);
  const seen = [];
  live.onchange = (changes) => seen.push(...changes.map(({ key, reason }) => [key, reason ?? ""]));
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ session: "other", resumed: false, reason: "expired" });
  world.newest().agree("sow_and_delta_subscribe", { s: "f1" });
  world.newest().say({ c: "group_begin", s: "f1" }, { c: "sow", s: "f1", t: "orders", k: "2", d: { id: 2 } });
  equal(live.rows, [{ id: 1 }, { id: 2 }]);
  world.newest().say({ c: "sow", s: "f1", t: "orders", k: "3", d: { id: 3 } }, { c: "group_end", s: "f1", bm: "9" });
  equal([live.rows, seen, live.gaps], [[{ id: 2 }, { id: 3 }], [["1", "gap"], ["3", ""]], 1]);
}

export async function a_replaced_view_changes_at_once(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }, { id: 2 }], { filter: "/id < 3" });
  const replaced = live.replace({ filter: "/id > 1", conflation: "1s" });
  const { filter, opts, s } = world.newest().sent.at(-1);
  equal([filter, opts, s], ["/id > 1", "replace,oof,conflation=1s", "f1"]);
  world.newest().agree("sow_and_delta_subscribe", { s: "f1" });
  world.newest().say(oof(1));
  equal([live.rows, await became(replaced)], [[{ id: 1 }, { id: 2 }], "waits"]);
  group(world.newest(), [{ id: 3 }]);
  await replaced;
  equal([live.rows, live.options], [[{ id: 2 }, { id: 3 }], { delta: true, filter: "/id > 1", conflation: "1s" }]);
}

export async function a_delta_of_a_text_is_requested_whole(client) {
  const world = await connected(client);
  const coming = world.sow.live("orders");
  await settled();
  world.newest().agree("sow_and_delta_subscribe", { s: "f1" });
  world.newest().say({ c: "group_begin", s: "f1" }, { c: "sow", s: "f1", t: "orders", k: "1", d: "1=a;2=b" }, { c: "group_end", s: "f1" });
  const live = await coming;
  world.newest().say({ c: "p", s: "f1", t: "orders", k: "1", d: "1=a;2=c", delta: true });
  equal([live.rows, world.newest().sent.slice(-2).map((line) => line.c)], [["1=a;2=b"], ["unsubscribe", "sow_and_subscribe"]]);
  world.newest().agree("sow_and_subscribe", { s: "f2" });
  world.newest().say({ c: "group_begin", s: "f2" }, { c: "sow", s: "f2", t: "orders", k: "1", d: "1=a;2=c" }, { c: "group_end", s: "f2" });
  equal([live.rows, live.get("1")], [["1=a;2=c"], "1=a;2=c"]);
}

export async function readers_have_their_own_pace(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1, n: 0 }]);
  const [slow, quick] = [live.changes(), live.changes()];
  const found = [];
  for (const n of [1, 2]) {
    world.newest().say(p({ id: 1, n }));
    const { value } = await quick.next();
    found.push([value.old.n, value.new.n]);
  }
  world.newest().say(p({ id: 2 }), oof(2)); // came and went unseen
  const { value } = await slow.next();
  equal([found, value.old.n, value.new.n, await became(slow.next())], [[[0, 1], [1, 2]], 0, 2, "waits"]);
  live.close();
  equal([await quick.next(), await live.changes().next()], [{ done: true }, { done: true }]);
}

export async function an_error_in_somebody_elses_code_is_theirs(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }]);
  const own = globalThis.queueMicrotask;
  const thrown = [];
  globalThis.queueMicrotask = (work) => {
    try {
      work();
    } catch (error) {
      thrown.push(error.message);
    }
  };
  try {
    live.onchange = () => {
      throw new Error("theirs");
    };
    world.newest().say(p({ id: 2 }));
    world.newest().say(p({ id: 3 }));
  } finally {
    globalThis.queueMicrotask = own;
  }
  equal([thrown, live.size, world.sow.state], [["theirs", "theirs"], 3, "connected"]);
}

export async function what_the_server_ends_is_over(client) {
  const world = await connected(client);
  const live = await lived(world, [{ id: 1 }]);
  const ends = [];
  live.onend = ({ reason, detail }) => ends.push([reason, detail]);
  const changes = live.changes();
  world.newest().say({ c: "unsubscribed", s: "f1", reason: "REMOVAL", detail: "the topic has gone" });
  world.newest().say(p({ id: 2 }));
  equal([ends, await changes.next(), live.size], [[["REMOVAL", "the topic has gone"]], { done: true }, 1]);
  const sub = await followed(world, "orders", {}, "f2");
  world.newest().say({ c: "unsubscribed", s: "f2", reason: "BACK_PRESSURE" });
  equal([(await sub.next()).value.reason, await sub.next()], ["BACK_PRESSURE", { done: true }]);
}

export async function the_end_of_a_range_ends_it(client) {
  const world = await connected(client);
  for (const [bookmark, over] of [["[1:2]", true], ["1", false]]) {
    const coming = world.sow.subscribe("orders", { bookmark });
    await settled();
    const { cid, a } = world.newest().last("subscribe");
    equal(a, "processed,completed");
    world.newest().say({ c: "ack", cid, a: "processed", status: "success", s: "f1" }, p({ id: 1 }), { c: "ack", cid, a: "completed", status: "success", s: "f1" });
    const sub = await coming;
    equal([(await sub.next()).value.command, (await sub.next()).value.command], ["p", "completed"]);
    equal(await became(sub.next()), over ? { value: { done: true } } : "waits");
    sub.close();
  }
}

export async function a_goodbye_is_said(client) {
  const world = await connected(client);
  await followed(world);
  world.sow.close();
  equal([world.newest().last("unsubscribe").s, world.newest().closed, world.states, world.clock.timers.length], ["all", true, ["closed"], 0]);
  world.sow.close();
  equal(world.states, ["closed"]);
}

export async function a_line_that_is_none_ends_it_with_a_sentence(client) {
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  for (const line of [
    "null",
    "7",
    "[]",
    '"p"',
    '{"c":"p","s":"f1","t":"orders","k":"1","d":"%%%","enc":"base64"}',
    `{"c":"p","s":"f1","t":"orders","k":"1","delta":true,"d":{"a":{"b":${deep.replace(/\[/g, '{"a":').replace(/\]/g, "}").replace(/:}/, ":1}")}}}}`,
  ]) {
    const world = await connected(client);
    const live = await lived(world, [{ id: 1 }]);
    let ended = null;
    live.onend = (why) => (ended = why);
    world.newest().data(`${line}\n`);
    await settled();
    if (world.sow.state !== "closed") throw new Error(`goes on after ${line.slice(0, 60)}`);
    equal([ended.reason, /does not speak SOW/.test(ended.detail)], ["unreachable", true], line.slice(0, 60));
  }
}

export async function integers_keep_their_digits_if_requested(client) {
  const { parseExact } = client;
  const found = parseExact('{"id":9007199254740993,"n":[-12345678901234567890,9007199254740991,9007199254740993.5,1e17],"px":0.1}');
  equal([typeof found.id, `${found.id}`, `${found.n[0]}`], ["bigint", "9007199254740993", "-12345678901234567890"]);
  equal([found.n[1], found.n[2], found.n[3], found.px], [9007199254740991, 9007199254740994, 1e17, 0.1]);
  // Texts are what they were, also those that look like what is written in between.
  const texts = { a: "9007199254740993", b: "9007199254740993\0", "c\0": "\0\0", d: '\\"9007199254740993', "9007199254740993\0": "\\u0000" };
  equal(parseExact(JSON.stringify({ ...texts, e: 0 }, null, 1).replace(": 0", " : 99999999999999999")).e.toString(), "99999999999999999");
  const { e, ...others } = parseExact(`${JSON.stringify(texts).slice(0, -1)},"e":99999999999999999}`);
  equal([others, typeof e], [texts, "bigint"]);
  equal(Object.keys(parseExact('{"__proto__":99999999999999999}')), ["__proto__"]);
  for (const bad of ['{"a":"99999999999999999', '{"a":099999999999999999}', '99999999999999999 "', '"99999999999999999\\']) {
    let error = null;
    try {
      parseExact(bad);
    } catch (caught) {
      error = caught;
    }
    equal(error?.name, "SyntaxError", bad);
  }
}

export async function a_client_reads_integers_as_requested(client) {
  const line = '{"c":"p","s":"f1","t":"orders","k":"1","d":{"id":9007199254740993}}';
  for (const [options, kind] of [[{ exact: true }, "bigint"], [{}, "number"]]) {
    const world = await connected(client, options);
    const sub = await followed(world);
    world.newest().data(line);
    equal(typeof (await sub.next()).value.record.id, kind);
  }
}

// Publishing exactly once.

/** A publisher whose first connection has been told the highest number of its name. */
async function publishing(client, sequence, messages = [{ id: 1 }]) {
  const world = await connected(client);
  const publisher = world.sow.idempotentPublisher("feed");
  for (const some of messages) await publisher.publish("orders", some);
  await settled();
  world.newest().welcome({ sequence, log: "aa" });
  await settled();
  return { ...world, publisher };
}

const numbers = (socket) => socket.sent.filter(({ seq }) => seq).map(({ c, seq, n = 1 }) => [c, seq, n]);

function agreeAll(socket) {
  const acks = socket.sent.filter(({ seq }) => seq).map(({ cid }) => ({ c: "ack", cid, a: "persisted", status: "success", bm: "9" }));
  socket.say(...acks);
}

export async function a_publisher_numbers_messages_and_sends_again_what_is_not_there(client) {
  const { publisher, newest, clock } = await publishing(client, 4, [[{ id: 1 }, { id: 2 }]]);
  const { client: name, sequence } = newest().last("logon");
  equal([name, sequence], ["feed", true]);
  await publisher.publish("orders", { id: 3 }, { delta: true });
  await publisher.delete("orders", { filter: "1=1" });
  equal(numbers(newest()), [["publish", 5, 2], ["delta_publish", 7, 1], ["sow_delete", 8, 1]]);
  newest().end();
  await clock.advance(1);
  newest().welcome({ sequence: 5, log: "aa" });
  await settled();
  equal(numbers(newest()), [["publish", 6, 1], ["delta_publish", 7, 1], ["sow_delete", 8, 1]]);
  equal(publisher.waiting, 3);
  const drained = publisher.drain();
  agreeAll(newest());
  equal(await became(drained), {});
  equal(publisher.waiting, 0);
}

export async function a_refused_message_leaves_a_publisher_and_those_behind_it_move_up(client) {
  const { publisher, newest } = await publishing(client, 0, [[{ id: 1 }, { id: 2 }, { id: 3 }], { id: 4 }]);
  const [one, two] = newest().sent.filter(({ seq }) => seq);
  newest().say(
    { c: "ack", cid: one.cid, a: "processed", status: "failure", reason: "bad message", index: 1 },
    { c: "ack", cid: two.cid, a: "processed", status: "failure", reason: "sequence gap", expected: 1 },
  );
  await settled();
  equal(numbers(newest()).slice(2), [["publish", 1, 2], ["publish", 3, 1]]);
  equal(newest().last("publish").bodies, ['{"id":4}']);
  await refused(() => publisher.drain(), { reason: "bad message", index: 1 });
  agreeAll(newest());
  await settled();
  await publisher.drain();
}

export async function a_publisher_whose_numbers_are_forgotten_stops_until_it_starts_again(client) {
  const { publisher, newest, clock } = await publishing(client, 3);
  agreeAll(newest());
  await settled();
  await publisher.publish("orders", { id: 2 });
  newest().end();
  await clock.advance(1);
  newest().welcome({ sequence: 0, log: "aa" });
  await refused(() => publisher.drain(), { reason: "sequence lost", held: 5, highest: 0 });
  await refused(() => publisher.publish("orders", { id: 3 }), { reason: "sequence lost" });
  publisher.restart();
  await settled();
  newest().welcome({ sequence: 0, log: "aa" });
  await settled();
  equal(numbers(newest()), [["publish", 1, 1]]);
  publisher.close();
  await refused(() => publisher.drain(), { reason: "disconnected" });
}

export async function a_publisher_that_is_replaced_or_finds_no_server_says_so(client) {
  const { publisher, newest, sow } = await publishing(client, 0);
  newest().say({ c: "close", reason: "replaced" });
  newest().end(1008, "replaced");
  await refused(() => publisher.drain(), { reason: "closed", message: /replaced/ });
  const other = sow.idempotentPublisher("other");
  await other.publish("orders", { id: 1 });
  await settled();
  newest().end();
  await settled();
  await refused(() => other.drain(), { reason: "unreachable" });
  equal(other.waiting, 1);
  await refused(() => other.publish("orders", "a\nb"), { reason: "bad message" });
}

// Several addresses.

const SEVERAL = { url: ["http://a.example", "http://b.example"] };

/** The server is lost and refuses, so that the next attempt is at another host. */
async function moved(world, host) {
  world.newest().end();
  await world.clock.advance(1);
  world.newest().end();
  await settled();
  equal(world.newest().url, `ws://${host}.example/v1/ws`);
}

export async function the_first_address_that_answers_is_used({ connect }) {
  const { sockets, Socket } = network();
  const coming = connect({ url: "http://a.example,http://b.example", WebSocket: Socket, after: new Clock().after });
  await settled();
  sockets[0].end();
  await settled();
  sockets[1].welcome();
  const sow = await coming;
  equal([sockets.map(({ url }) => url), sow.state], [["ws://a.example/v1/ws", "ws://b.example/v1/ws"], "connected"]);
  sow.close();
}

export async function when_no_address_answers_each_is_named({ connect }) {
  const { sockets, Socket } = network();
  const coming = connect({ ...SEVERAL, WebSocket: Socket, after: new Clock().after });
  const error = refused(() => coming, { reason: "unreachable", message: /^none of 2 addresses can be used: .*a\.example.*b\.example/ });
  for (const at of [0, 1]) {
    await settled();
    sockets[at].end();
  }
  await error;
}

export async function a_list_that_is_none_is_refused({ connect }) {
  for (const [url, message] of [
    ["http://a,,http://b", /has an empty one/],
    ["http://a,https://b", /different schemes/],
    [["http://a", "http://a"], /twice/],
    [[], /has an empty one/],
  ]) await refused(() => connect({ url }), { reason: "bad request", message });
}

export async function a_subscription_goes_on_elsewhere_behind_its_bookmark({ connect }) {
  const world = await connected({ connect }, SEVERAL);
  const coming = world.sow.subscribe("orders");
  await settled();
  world.newest().agree("sow", { s: "q1" }, ["processed"]);
  world.newest().say({ c: "group_begin", s: "q1" }, { c: "group_end", s: "q1", bm: "5" });
  world.newest().agree("sow", {}, ["completed"]);
  await settled();
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  const orders = await coming;
  for (const [seen, host] of [["5", "b"], ["7", "a"]]) {
    await moved(world, host);
    world.newest().welcome({ session: `at ${host}`, reason: "unknown session" });
    await settled();
    equal(world.newest().last("subscribe").bm, seen);
    world.newest().agree("subscribe", { s: "f2" });
    world.newest().say({ c: "p", s: "f2", k: "1", d: { id: 1 }, bm: "7" });
  }
  equal([(await orders.next()).value.command, (await orders.next()).value.command, orders.gaps], ["p", "p", 0]);
  world.sow.close();
}

export async function a_server_that_has_not_come_so_far_is_left({ connect }) {
  const world = await connected({ connect }, SEVERAL);
  const coming = world.sow.subscribe("orders", { bookmark: "5" });
  await settled();
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  const orders = await coming;
  world.newest().say({ c: "p", s: "f1", k: "1", d: { id: 1 }, bm: "7" });
  for (const reason of ["not yet", "replaying"]) {
    await moved(world, "b");
    world.newest().welcome({ session: "another", reason: "unknown session" });
    await settled();
    const { cid, bm } = world.newest().last("subscribe");
    world.newest().say({ c: "ack", cid, a: "processed", status: "failure", reason });
    await world.clock.advance(1);
    equal([bm, world.newest().url], ["7", "ws://a.example/v1/ws"]);
    world.newest().welcome({ session: "a third" });
    await settled();
    equal(world.newest().last("logon").session, undefined);
    equal(world.newest().last("subscribe").bm, "7");
    world.newest().agree("subscribe", { s: "f2" }, ["processed"]);
  }
  world.newest().say({ c: "p", s: "f2", k: "1", d: { id: 1 }, bm: "8" });
  equal([(await orders.next()).value.bookmark, (await orders.next()).value.bookmark, orders.gaps], ["7", "8", 0]);
  world.sow.close();
}

export async function a_subscription_begins_where_a_server_has_come_so_far({ connect }) {
  const world = await connected({ connect }, SEVERAL);
  const coming = world.sow.subscribe("orders", { bookmark: "5" });
  await settled();
  const { cid } = world.newest().last("subscribe");
  world.newest().say({ c: "ack", cid, a: "processed", status: "failure", reason: "stale" });
  await world.clock.advance(1);
  equal(world.newest().url, "ws://b.example/v1/ws");
  world.newest().welcome({ session: "another" });
  await settled();
  equal(world.newest().last("subscribe").bm, "5");
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  const orders = await coming;
  world.newest().say({ c: "p", s: "f1", k: "1", d: { id: 1 }, bm: "7" });
  equal([(await orders.next()).value.bookmark, orders.gaps], ["7", 0]);
  world.sow.close();
}

export async function the_only_server_that_has_not_come_so_far_is_asked_again({ connect }) {
  const world = await connected({ connect });
  const coming = world.sow.subscribe("orders", { bookmark: "5" });
  await settled();
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  const orders = await coming;
  world.newest().say({ c: "p", s: "f1", k: "1", d: { id: 1 }, bm: "7" });
  world.newest().end();
  await world.clock.advance(1);
  world.newest().welcome({ session: "another", reason: "unknown session" });
  await settled();
  const { cid } = world.newest().last("subscribe");
  world.newest().say({ c: "ack", cid, a: "processed", status: "failure", reason: "not yet" });
  await world.clock.advance(6);
  const again = world.newest().last("subscribe");
  equal([again.cid === cid, again.bm, world.sockets.length], [false, "7", 2]);
  world.newest().agree("subscribe", { s: "f2" }, ["processed"]);
  equal([(await orders.next()).value.command, (await orders.next()).value.command], ["p", "gap"]);
  world.sow.close();
}

export async function what_has_left_is_said_once_also_elsewhere({ connect }) {
  const world = await connected({ connect }, SEVERAL);
  const coming = world.sow.subscribe("orders", { oof: true, bookmark: "5" });
  await settled();
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  const orders = await coming;
  const line = (c, bm) => ({ c, s: "f1", t: "orders", k: "1", d: { id: 1 }, bm });
  world.newest().say(line("p", "6"), line("oof"));
  await moved(world, "b");
  world.newest().welcome({ session: "at b", reason: "unknown session" });
  await settled();
  equal(world.newest().last("subscribe").bm, "6");
  world.newest().agree("subscribe", { s: "f1" }, ["processed"]);
  world.newest().say(line("oof", "7"), line("p", "8"), line("oof", "9"));
  const found = [];
  for (let count = 0; count < 4; count += 1) found.push((await orders.next()).value);
  equal(found.map(({ command, bookmark }) => [command, bookmark]), [["p", "6"], ["oof", undefined], ["p", "8"], ["oof", "9"]]);
  world.sow.close();
}

export async function what_a_follower_refuses_goes_to_the_primary_in_order({ connect }) {
  const world = await connected({ connect });
  const publishes = [1, 2].map((id) => world.sow.publish("orders", { id }));
  await settled();
  const follower = world.sockets[0];
  for (const { cid } of follower.sent.filter(({ c }) => c === "publish")) {
    follower.say({ c: "ack", cid, a: "persisted", status: "failure", reason: "not primary", primary: "http://p.example" });
  }
  await settled();
  const primary = world.newest();
  equal([world.sockets.length, primary.url], [2, "ws://p.example/v1/ws"]);
  primary.welcome();
  await settled();
  const sent = primary.sent.filter(({ c }) => c === "publish");
  equal(sent.map(({ bodies }) => bodies), [['{"id":1}'], ['{"id":2}']]);
  for (const { cid } of sent) primary.say({ c: "ack", cid, a: "persisted", status: "success", bm: "9" });
  equal(await Promise.all(publishes), ["9", "9"]);
  const third = world.sow.delete("orders", { filter: "/id = 1" });
  await settled();
  primary.agree("sow_delete", { deleted: 1 });
  equal([await third, follower.last("sow_delete")], [1, undefined]);
  world.sow.close();
  equal([follower.closed, primary.closed], [true, true]);
}

export async function a_primary_without_the_encryption_of_the_address_is_refused({ connect }) {
  const world = await connected({ connect }, { url: "https://a.example" });
  const publish = world.sow.publish("orders", { id: 1 });
  await settled();
  const { cid } = world.newest().last("publish");
  world.newest().say({ c: "ack", cid, a: "persisted", status: "failure", reason: "not primary", primary: "http://p.example" });
  await refused(() => publish, { reason: "bad request", message: /another scheme/ });
  equal(world.sockets.length, 1);
  world.sow.close();
}

export async function nonsense_that_is_named_as_a_primary_is_refused({ connect }) {
  for (const [primary, message] of [
    ["http://ann:secret@p.example", /has a user in it/],
    [`http://${"p".repeat(3000)}`, /has 3007 characters/],
    ["http://p.example?to=q", /is none such as/],
    ["/elsewhere", /is none such as/],
    ["javascript:alert(1)", /is none such as/],
    ["ftp://p.example", /is not an address of http/],
    [{ toString: () => "http://p" }, /is none such as|another scheme/],
  ]) {
    const world = await connected({ connect });
    const publish = world.sow.publish("orders", { id: 1 });
    await settled();
    const { cid } = world.newest().last("publish");
    world.newest().say({ c: "ack", cid, a: "persisted", status: "failure", reason: "not primary", primary });
    const { message: said } = await refused(() => publish, { reason: "bad request", message });
    equal(said?.includes("secret") ?? false, false);
    equal(world.sockets.length, 1);
    world.sow.close();
  }
}

export async function a_server_with_another_log_is_passed_over({ connect }) {
  const world = await connected({ connect }, SEVERAL);
  await moved(world, "b");
  world.newest().welcome({ session: "other", log: "5f0c9a1e22d47b03" });
  await settled();
  equal(world.sow.state, "connected");
  await moved(world, "a");
  const there = world.newest();
  there.welcome({ session: "third", log: "0000000000000001" });
  await settled();
  equal([there.closed, world.sow.state], [true, "reconnecting"]);
  world.sow.close();
}
