// The reference of the API, made from /v1/openapi.json: operations with parameters, bodies, answers, and a form to try
// each one.
import { ApiError, read } from "./api.js";
import { Operation } from "./operation.js";
import { plainText } from "./schema.js";
import { ThemeSwitch } from "./theme.js";
import { TokenDialog } from "./token.js";
import { html, render, useEffect, useState } from "./ui.js";

const METHODS = ["get", "post", "put", "delete"];

function operationsOf(api) {
  // Those of /v1 first; the paths of before it, which are deprecated, last.
  const found = [];
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS) {
      if (methods[method]) found.push({ path, method, about: methods[method] });
    }
  }
  return [found.filter((one) => !one.about.deprecated), found.filter((one) => one.about.deprecated)];
}

function groupsOf(operations) {
  // By tag, in the order in which tags come first.
  const found = new Map();
  for (const one of operations) {
    const tag = one.about.tags?.[0] ?? "";
    found.set(tag, [...(found.get(tag) ?? []), one]);
  }
  return [...found];
}

function Contents({ operations }) {
  return html`
    <nav class="contents card" aria-label="Operations">${groupsOf(operations).map(([tag, ones]) => html`
      ${tag && html`<h2>${tag}</h2>`}
      <ul>${ones.map(({ path, method, about }) => html`
        <li key=${method + path}><a href=${`#${about.operationId}`}><span class=${`method ${method}`}>${method.toUpperCase()}</span> ${path}</a></li>`)}</ul>`)}
    </nav>`;
}

function Reference({ api }) {
  const [current, former] = operationsOf(api);
  return html`
    <h1>${api.info.title}: HTTP API</h1>
    <div class="card about">${plainText(api.info.description)}
      <p class="muted">Version ${api.info.version}. <a href="v1/openapi.json">openapi.json</a> describes the same for
        programs: clients can be generated from it.</p></div>
    <${Contents} operations=${current} />
    ${current.map((one) => html`<${Operation} key=${one.method + one.path} api=${api} ...${one} />`)}
    ${former.length > 0 && html`
      <details class="card">
        <summary>Paths of before /v1, which stay (${former.length})</summary>
        <ul class="former">${former.map(({ path, method }) => html`<li><span class=${`method ${method}`}>${method.toUpperCase()}</span> ${path}</li>`)}</ul>
      </details>`}`;
}

function Page() {
  const [api, setApi] = useState(null);
  const [trouble, setTrouble] = useState("");
  const load = () => read("v1/openapi.json").then((found) => { setApi(found); setTrouble(""); }, (error) => {
    if (!(error instanceof ApiError)) throw error;
    setTrouble(error.message);
  });
  useEffect(() => { load(); }, []);
  useEffect(() => {
    if (api && location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }, [api]);
  return html`
    <header>
      <a class="brand" href="./"><img src="assets/icon.svg" alt="" width="22" height="22" />Freshet</a>
      <nav aria-label="Views"><a href="./#/">Overview</a><a href="./#/vertex">Vertex</a><a href="docs" aria-current="page">API</a></nav>
      <${ThemeSwitch} />
    </header>
    <main id="main" tabindex="-1">
      ${trouble && html`<p class="notice bad" role="alert">The description of the API could not be read: ${trouble}.
        <button type="button" onClick=${load}>Try again</button></p>`}
      ${!api && !trouble && html`<h1>HTTP API</h1><p class="loading">Loading the description of the API.</p>`}
      ${api && html`<${Reference} api=${api} />`}
    </main>
    <${TokenDialog} />`;
}

const app = document.getElementById("app");
app.replaceChildren();
render(html`<${Page} />`, app);
