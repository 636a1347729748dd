// The console's frame: navigation, the state of the connection, and the page in the address. A page is
// a module of pages/ with a component, which gets the name and the parameters in the address.

import {html, render, useEffect, useEvery, useSignal, problem, Environment, Question} from "./parts.js";
import {address, linkTo} from "./address.js";
import {credentials, isAdmin, learnRights, learnServer, logOn, needsLogon, server, state} from "./server.js";
import {Topics} from "./pages/topics.js";
import {Topic} from "./pages/topic.js";
import {Slider} from "./pages/slider.js";
import {Sessions} from "./pages/sessions.js";
import {Explain} from "./pages/explain.js";
import {Config} from "./pages/config.js";
import {Pipelines} from "./pages/pipelines.js";
import {LogOn} from "./pages/logon.js";
import {Definition} from "./pages/definition.js";
import {Forbidden} from "./states.js";

// A reload may change the environment, and what is shown of it has time.
const LEARN_MS = 30_000;

const PAGES = {
  __proto__: null, // an address may name anything
  topics: {title: "Topics", shows: Topics},
  topic: {shows: Topic, under: "topics"},
  slider: {shows: Slider, under: "topics"},
  explain: {shows: Explain, under: "topics"},
  definition: {shows: Definition, under: "topics"},
  sessions: {title: "Sessions", shows: Sessions},
  pipelines: {title: "Pipelines", shows: Pipelines, admin: true},
  config: {title: "Config", shows: Config, admin: true},
};

// The pages of the whole server; those of a topic are its tabs.
function Navigation({page}) {
  const admin = useSignal(isAdmin) !== false;
  const here = PAGES[page]?.under || page;
  const links = Object.entries(PAGES).filter(([, one]) => one.title && (admin || !one.admin));
  return html`<nav aria-label="Pages">
    ${links.map(
      ([target, one]) => html`<a
        key=${target}
        href=${linkTo(target)}
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
  const user = known && (known.user || "token");
  return html`<div class="connection">
    <span class="state ${now}" role="status">${STATES[now] ?? now}</span>
    ${user &&
    html`<span class="user">${user}</span>
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
  const {page, name, params} = useSignal(address);
  const unknown = useSignal(needsLogon);
  const known = useSignal(credentials);
  const here = useSignal(server);
  const admin = useSignal(isAdmin) !== false;
  const found = PAGES[page] || PAGES.topics;
  useEffect(() => {
    problem.value = null;
  }, [page, name]);
  useEffect(() => {
    const server = [here.name || "SOW", here.environment];
    document.title = [name, found.title, ...server].filter(Boolean).join(" · ");
  }, [page, name, here]);
  useEvery(LEARN_MS, learnServer, [known]);
  useEffect(() => {
    learnRights();
  }, [known]);
  return html`<header>
      <a class="mark" href=${linkTo("topics")}><span aria-hidden="true"></span>SOW</a>
      <span class="server">${here.name}<${Environment} of=${here} /></span>
      ${!unknown && html`<${Navigation} page=${page} />`}
      <${Connection} />
    </header>
    <main id="main">
      ${unknown
        ? html`<${LogOn} />`
        : found.admin && !admin
          ? html`<h1>${found.title}</h1>
              <${Forbidden} what=${`the page ${found.title}`} verb="Admin" />`
          : html`<${found.shows} key=${`${page}/${name}`} name=${name} params=${params} />`}
    </main>
    <${Problem} />
    <${Question} />`;
}

render(html`<${App} />`, document.getElementById("app"));
