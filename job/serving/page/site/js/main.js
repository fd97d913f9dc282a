// The page: navigation, notices, and the view that the hash names.
import { giveToken, hasToken } from "./api.js";
import { clock } from "./format.js";
import { follow, useLive } from "./live.js";
import { Overview } from "./overview.js";
import { ThemeSwitch } from "./theme.js";
import { TokenDialog } from "./token.js";
import { html, render, useEffect, useState } from "./ui.js";
import { Vertex } from "./vertex.js";

const STALE_MS = 8_000;

function place() {
  // The view that the hash names, and its fields.
  const [path, query = ""] = location.hash.slice(1).split("?");
  const fields = new URLSearchParams(query);
  return { view: path === "/vertex" ? "vertex" : "overview", id: fields.get("id"), kind: fields.get("kind") };
}

function usePlace() {
  const [at, setAt] = useState(place());
  useEffect(() => {
    const look = () => setAt(place());
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return at;
}

export function Header({ view }) {
  const here = (name) => (view === name ? "page" : undefined);
  return html`
    <header>
      <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
      <a class="brand" href="./#/"><img src="assets/icon.svg" alt="" width="22" height="22" />Freshet</a>
      <nav aria-label="Views">
        <a href="./#/" aria-current=${here("overview")}>Overview</a>
        <a href="./#/vertex" aria-current=${here("vertex")}>Vertex</a>
        <a href="docs" aria-current=${here("docs")}>API</a>
      </nav>
      <${ThemeSwitch} />
    </header>`;
}

function Notices() {
  const { trouble, answeredMs, denied } = useLive();
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const old = answeredMs > 0 && Date.now() - answeredMs > STALE_MS;
  document.documentElement.classList.toggle("stale", Boolean(trouble) || old);
  if (trouble) {
    const from = answeredMs ? ` What stands below is from ${clock(answeredMs)}.` : "";
    return html`<p class="notice bad" role="alert">No connection: ${trouble}. Trying again.${from}</p>`;
  }
  if (denied) {
    return html`<p class="notice warn" role="status">This server asks for a token${hasToken() ? " with more rights" : ""}.
      <button type="button" onClick=${() => giveToken()}>Enter a token</button></p>`;
  }
  return null;
}

function Page() {
  const { view, id, kind } = usePlace();
  const { status } = useLive();
  const title = view === "vertex" ? `${id ?? "Vertex"} · Freshet` : `${status ? `${status.name}: ${status.state} · ` : ""}Freshet`;
  useEffect(() => { document.title = title; }, [title]);
  return html`
    <${Header} view=${view} />
    <main id="main" tabindex="-1">
      <${Notices} />
      ${view === "vertex" ? html`<${Vertex} id=${id} kind=${kind} />` : html`<${Overview} />`}
    </main>
    <${TokenDialog} />`;
}

const app = document.getElementById("app");
app.replaceChildren();
render(html`<${Page} />`, app);
follow();
