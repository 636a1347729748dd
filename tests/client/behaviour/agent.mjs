// The steps of the tables (tables.txt), done with sow.js: in Node (node.mjs) and in a page.

/** A record as text, whatever the order of its fields. */
function canonical(record) {
  if (record === null || typeof record !== "object") return JSON.stringify(record);
  return `{${Object.keys(record).sort().map((name) => `${name}:${canonical(record[name])}`)}}`;
}

export class Agent {
  #sow = null;
  #open = new Map();
  #changes = new Map();
  #away = false;
  #waiting = [];
  #options = {};
  #ends = new Map();
  #over = null;

  constructor(client, url) {
    this.client = client;
    this.url = url;
  }

  async act(verb, words) {
    try {
      if (verb === "logon") this.#options = words[0];
      this.#sow ??= await this.client.connect({
        ...this.#options,
        url: this.url,
        name: "agent",
        random: () => 0,
        after: (seconds, work) => this.#after(seconds, work),
      });
      this.#over ??= new Promise((done) => {
        this.#sow.onstate = ({ state, reason }) => state === "closed" && done(reason);
      });
      return (await this[verb](...words)) ?? null;
    } catch (error) {
      if (!(error instanceof this.client.SowError)) throw error;
      return { refused: { reason: error.reason, index: error.index, position: error.position } };
    }
  }

  /** No time passes: waits to come back end at once, or when it is said; all longer ones never. */
  #after(seconds, work) {
    if (seconds > 5) return () => {};
    if (this.#away) this.#waiting.push(work);
    else queueMicrotask(work);
    return () => {};
  }

  logon = () => this.#sow.state;
  query = async (topic, options) => (await this.#sow.query(topic, options)).map((one) => (one instanceof Uint8Array ? [...one] : one));
  matches = async (topic, options) => (await this.#sow.query(topic, options)).matches;
  bookmark = async (_name, topic) => (await this.#sow.query(topic)).bookmark;
  reached = (_name, subscription) => this.#open.get(subscription).bookmark;
  delete = (topic, options) => this.#sow.delete(topic, options);

  async publish(topic, messages) {
    await this.#sow.publish(topic, messages);
    return "done";
  }

  async delta(topic, message) {
    await this.#sow.publish(topic, message, { delta: true });
    return "done";
  }

  many(topic, count) {
    const messages = Array.from({ length: count > 0 ? count : 2000 }, (_, id) => ({ id }));
    if (count < 0) messages[1500] = { px: 1 };
    return this.publish(topic, messages);
  }

  nan = (topic) => this.publish(topic, [{ id: 1 }, { id: 2, px: NaN }]);

  async bytes(topic, key, numbers) {
    await this.#sow.publish(topic, Uint8Array.from(numbers), { key });
    return "done";
  }

  async subscribe(name, topic, options) {
    this.#open.set(name, await this.#sow.subscribe(topic, options));
  }

  async next(name) {
    const { value, done } = await this.#open.get(name).next();
    if (value?.command === "completed") return this.next(name); // which Python does not say
    return done ? "end" : value;
  }

  async live(name, topic, options) {
    const live = await this.#sow.live(topic, options);
    this.#open.set(name, live);
    this.#changes.set(name, live.changes());
    this.#ends.set(name, new Promise((done) => (live.onend = ({ error, reason }) => done(error?.reason ?? reason))));
  }

  rows(name) {
    const live = this.#open.get(name);
    const rows = [...live.rows];
    return live.options.top_n === undefined ? rows.sort((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1)) : rows;
  }

  async until(name, expected) {
    const changes = this.#open.get(name).changes();
    while (JSON.stringify(this.rows(name)) !== JSON.stringify(expected)) {
      const { done } = await changes.next();
      if (done) break;
    }
    changes.return();
    return this.rows(name);
  }

  async change(name) {
    const { value, done } = await this.#changes.get(name).next();
    return done ? "end" : { old: value.old ?? null, new: value.new ?? null };
  }

  /** Waits until the records are these, in whatever order where there is none. */
  async until_same(name, expected) {
    const sorted = (rows) => JSON.stringify(this.#open.get(name).options.top_n === undefined ? rows.map(canonical).sort() : rows.map(canonical));
    const changes = this.#open.get(name).changes();
    while (sorted([...this.#open.get(name).rows]) !== sorted(expected)) if ((await changes.next()).done) return false;
    changes.return();
    return true;
  }

  async until_there(name, record) {
    const live = this.#open.get(name);
    const changes = live.changes();
    const isThere = () => live.rows.some((one) => JSON.stringify(one) === JSON.stringify(record));
    while (!isThere() && !(await changes.next()).done);
    changes.return();
    return this.rows(name);
  }

  /** Why the client is closed, once it is. */
  closed = () => this.#over;

  /** Why a live view has ended, once it has. */
  ended = (name) => this.#ends.get(name);
  gaps = (name) => this.#open.get(name).gaps;

  away() {
    this.#away = true;
  }

  back() {
    this.#away = false;
    for (const work of this.#waiting.splice(0)) work();
  }

  close = (name) => this.#open.get(name).close();

  /** A client that knows nothing of what this one has done, which goes. */
  renewed() {
    this.back();
    this.#sow?.close();
    return new Agent(this.client, this.url);
  }
}
