// One operation: what it takes and answers, and a form to try it on this server.
import { ApiError, send } from "./api.js";
import { exampleOf, Field, Fields, plainText, resolve } from "./schema.js";
import { html, useState } from "./ui.js";

const JSON_TYPE = "application/json";
const SHOWN = 20_000; // characters of an answer
const STREAM = "text/event-stream";

const bodyOf = (about) => about.requestBody?.content?.[JSON_TYPE];

function firstExample(api, body) {
  const named = Object.values(body.examples ?? {})[0]?.value;
  return JSON.stringify(body.example ?? named ?? exampleOf(api, body.schema), null, 1);
}

function urlOf(path, parameters, fields) {
  const query = new URLSearchParams();
  let filled = path;
  for (const one of parameters) {
    const value = fields.get(`p-${one.name}`);
    if (one.in === "path") filled = filled.replace(new RegExp(`\\{${one.name}(:[a-z]+)?\\}`), encodeURIComponent(value));
    else if (value !== "") query.append(one.name, value);
  }
  return filled.replace(/^\//, "") + (query.size ? `?${query}` : "");
}

function curl(url, method, body) {
  const at = new URL(url, document.baseURI).href;
  const sent = body === undefined ? "" : ` -H 'Content-Type: application/json' -d '${body.replaceAll("'", "'\\''").replace(/\s*\n\s*/g, " ")}'`;
  return `curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}'${at}'${sent}`;
}

function shown(text, type) {
  let found = text;
  if (type.startsWith(JSON_TYPE)) {
    try {
      found = JSON.stringify(JSON.parse(text), null, 1);
    } catch { /* as it is */ }
  }
  return found.length > SHOWN ? `${found.slice(0, SHOWN)}\n… ${found.length} characters in all` : found;
}

function Try({ api, path, method, about }) {
  const [answer, setAnswer] = useState(null);
  const parameters = about.parameters ?? [];
  const body = bodyOf(about);
  const name = about.operationId;
  const submit = async (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const url = urlOf(path, parameters, fields);
    const given = body ? fields.get("body") : undefined;
    setAnswer({ waits: true, command: curl(url, method, given) });
    const began = performance.now();
    try {
      const found = await send(url, { method: method.toUpperCase(), body: given, timeout: 70_000 });
      const text = await found.text();
      const ms = Math.round(performance.now() - began);
      setAnswer({ status: found.status, ms, text: shown(text, found.headers.get("content-type") ?? ""), command: curl(url, method, given) });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setAnswer({ status: 0, text: error.message, command: curl(url, method, given) });
    }
  };
  return html`
    <details class="try">
      <summary>Try it</summary>
      <form onSubmit=${submit}>
        ${parameters.map((one) => html`
          <div key=${one.name}><label for=${`${name}-${one.name}`}>${one.name}${one.required ? "" : " (optional)"}</label>
            <input id=${`${name}-${one.name}`} name=${`p-${one.name}`} required=${one.required && one.in === "path"} autocomplete="off" /></div>`)}
        ${body && html`<div><label for=${`${name}-body`}>Body</label>
          <textarea id=${`${name}-body`} name="body" rows="5" spellcheck=${false}>${firstExample(api, body)}</textarea></div>`}
        <button type="submit" class="primary">Send</button>
      </form>
      <div aria-live="polite">${answer && html`
        <p class="muted">The same by <code>${answer.command}</code></p>
        ${answer.waits ? html`<p>Waiting for the answer.</p>` : html`
          <p><strong>${answer.status || "No answer"}</strong> ${answer.ms !== undefined && html`<span class="muted">in ${answer.ms} ms</span>`}</p>
          <pre tabindex="0">${answer.text}</pre>`}`}</div>
    </details>`;
}

function Answers({ api, about }) {
  return html`
    <ul class="answers">${Object.entries(about.responses ?? {}).map(([status, given]) => {
      const answer = resolve(api, given);
      const schema = answer.content?.[JSON_TYPE]?.schema;
      return html`
        <li key=${status}><details><summary><strong>${status}</strong> ${answer.description}</summary>
          ${schema ? html`<${Fields} api=${api} schema=${schema} />` : html`<p class="muted">${Object.keys(answer.content ?? {}).join(", ") || "no body"}</p>`}</details></li>`;
    })}</ul>`;
}

export function Operation({ api, path, method, about }) {
  const parameters = about.parameters ?? [];
  const body = bodyOf(about);
  const streams = Object.values(about.responses ?? {}).some((one) => resolve(api, one).content?.[STREAM]);
  return html`
    <section class="card operation" id=${about.operationId} aria-labelledby=${`${about.operationId}-name`}>
      <h2 id=${`${about.operationId}-name`}><span class=${`method ${method}`}>${method.toUpperCase()}</span> <code>${path}</code></h2>
      ${plainText(about.description ?? about.summary)}
      ${parameters.length > 0 && html`<h3>Parameters</h3>
        <ul class="fields">${parameters.map((one) => html`<${Field} key=${one.name} api=${api} name=${one.name} schema=${one.schema} required=${one.required} about=${one.description || undefined} />`)}</ul>`}
      ${body && html`<h3>Body</h3><${Fields} api=${api} schema=${body.schema} />`}
      <h3>Answers</h3>
      <${Answers} api=${api} about=${about} />
      ${streams ? html`<p class="muted">A stream of events: follow it with <code>curl -N</code> or an EventSource.</p>`
        : html`<${Try} api=${api} path=${path} method=${method} about=${about} />`}
    </section>`;
}
