// The console's frame: where somebody is, where he can go, how the connection is, and the page that
// the address names. A page is a module of pages/ with a component; it is given the name behind its
// own in the address, and what is asked for there.

import {html, render, useEffect, useSignal, problem, signal} from "./parts.js";
import {address, linkTo} from "./address.js";
import {asks, credentials, logOn, read, state} from "./server.js";
import {Topics} from "./pages/topics.js";
import {Topic} from "./pages/topic.js";
import {Slider} from "./pages/slider.js";
import {Sessions} from "./pages/sessions.js";
import {Explain} from "./pages/explain.js";
import {Config} from "./pages/config.js";
import {Pipelines} from "./pages/pipelines.js";
import {LogOn} from "./pages/logon.js";

const PAGES = {
  topics: {title: "Topics", shows: Topics},
  topic: {shows: Topic, under: "topics", ofTopic: true},
  slider: {title: "Slider", shows: Slider, ofTopic: true},
  sessions: {title: "Sessions", shows: Sessions},
  explain: {title: "Explain", shows: Explain, ofTopic: true},
  pipelines: {title: "Pipelines", shows: Pipelines, admin: true},
  config: {title: "Config", shows: Config, admin: true},
};

// Whether who looks may administer the server; what he may not see is not there.
const isAdmin = signal(true);

async function learnRights() {
  if (!credentials.peek()) return;
  try {
    await read("v1/config");
    isAdmin.value = true;
  } catch (error) {
    isAdmin.value = error.status !== 403;
  }
}

// Who goes from one page about a topic to another one stays with the topic.
function Navigation({page, name}) {
  const admin = useSignal(isAdmin);
  const here = PAGES[page]?.under || page;
  const links = Object.entries(PAGES).filter(([, one]) => one.title && (admin || !one.admin));
  return html`<nav aria-label="Pages">
    ${links.map(
      ([target, one]) => html`<a
        key=${target}
        href=${linkTo(target, one.ofTopic && PAGES[page]?.ofTopic ? name : "")}
        aria-current=${target === here ? "page" : null}
        >${one.title}</a
      >`,
    )}
  </nav>`;
}

const STATES = {
  connected: "live",
  connecting: "connecting",
  reconnecting: "connecting again",
  paused: "paused",
  closed: "",
};

function Connection() {
  const now = useSignal(state);
  const known = useSignal(credentials);
  const who = known && (known.user || "token");
  return html`<div class="connection">
    <span class="state ${now}" role="status">${STATES[now] ?? now}</span>
    ${who &&
    html`<span class="who">${who}</span>
      <button class="quiet" onClick=${() => logOn(null)}>Log off</button>`}
  </div>`;
}

function Problem() {
  const wrong = useSignal(problem);
  if (!wrong || wrong.status === 401) return null;
  return html`<div class="problem" role="alert">
    <span>${wrong.detail || wrong.message || String(wrong)}</span>
    <button class="quiet" aria-label="Close" onClick=${() => (problem.value = null)}>×</button>
  </div>`;
}

function App() {
  const {page, name, asked} = useSignal(address);
  const unknown = useSignal(asks);
  const known = useSignal(credentials);
  const found = PAGES[page] || PAGES.topics;
  useEffect(() => {
    problem.value = null;
    document.title = [name, found.title, "SOW"].filter(Boolean).join(" · ");
  }, [page, name]);
  useEffect(() => {
    learnRights();
  }, [known]);
  return html`<header>
      <a class="mark" href=${linkTo("topics")}><span aria-hidden="true"></span>SOW</a>
      ${!unknown && html`<${Navigation} page=${page} name=${name} />`}
      <${Connection} />
    </header>
    <main id="main">
      ${unknown
        ? html`<${LogOn} />`
        : html`<${found.shows} key=${`${page}/${name}`} name=${name} asked=${asked} />`}
    </main>
    <${Problem} />`;
}

render(html`<${App} />`, document.getElementById("app"));
