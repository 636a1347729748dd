// The logon, if the server requires one: a name with a password, or a token. Nothing else is shown
// before. The credentials are kept in this tab, until it is closed or the user logs off.

import {html, useSignal, useState, Environment} from "../parts.js";
import {credentials, logOn, read, needsLogon, server} from "../server.js";

export function LogOn() {
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const here = useSignal(server);
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const [user, password, token] = ["user", "password", "token"].map((name) => form.get(name));
    if (!user && !token) return setWrong("Give a name and a password, or a token.");
    setBusy(true);
    credentials.value = token ? {token} : {user, password};
    try {
      await read("v1/topics");
      logOn(credentials.peek());
      needsLogon.value = false;
    } catch (error) {
      credentials.value = null;
      setWrong(error.status === 401 ? "The name, password or token is wrong." : error.message);
    }
    return setBusy(false);
  };
  return html`<form class="logon panel padded" onSubmit=${send}>
    <h1>Log on${here.name ? ` to ${here.name} ` : ""}<${Environment} of=${here} /></h1>
    <label>Name <input name="user" autocomplete="username" autofocus /></label>
    <label>Password <input name="password" type="password" autocomplete="current-password" /></label>
    <label>or a token <input name="token" type="password" autocomplete="off" /></label>
    ${wrong && html`<div class="bad" role="alert">${wrong}</div>`}
    <button class="first" disabled=${busy}>Log on</button>
  </form>`;
}
