// Parts of the job, kinds of vertices, the server and its processes, and how far the input is read.
import { epochText, missing, moment, NONE, plural, whole } from "./format.js";
import { html } from "./ui.js";

const FEEDS = {
  job: "the folder of its job",
  service: "the jobs of a service folder",
  servers: "other servers",
  topic: "a Kafka topic",
};

const RUNTIMES = { flink: "Flink", local: "local, in one process" };

const pairs = (rows) => html`
  <dl class="pairs">${rows.filter(([, value]) => value !== null && value !== "").map(([name, value]) => html`
    <div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

function Kinds({ kinds }) {
  return html`
    <div class="card scroll" tabindex="0" role="region" aria-label="Kinds of vertices">
      <table>
        <thead><tr><th scope="col">Kind</th><th scope="col" class="number">Vertices</th><th scope="col" class="number">Epoch</th>
          <th scope="col" class="number">Numbers a row</th><th scope="col" class="number">Classes</th></tr></thead>
        <tbody>${kinds.map((one) => html`
          <tr key=${one.kind}><th scope="row">${one.kind || "vertices"}</th><td class="number">${whole(one.vertices)}</td>
            <td class="number">${epochText(one.epoch)}</td><td class="number">${whole(one.width)}</td>
            <td class="number">${whole(one.classes)}</td></tr>`)}</tbody>
      </table>
    </div>`;
}

function Positions({ positions }) {
  return html`
    <details class="card">
      <summary>Input, as far as the rows have it</summary>
      <div class="scroll" tabindex="0" role="region" aria-label="Positions of the input">
        <table>
          <thead><tr><th scope="col">Source</th><th scope="col" class="number">Partition</th><th scope="col" class="number">Next record</th></tr></thead>
          <tbody>${positions.map((one) => html`
            <tr key=${`${one.source}/${one.partition}`}><th scope="row" class="text">${one.source || NONE}</th>
              <td class="number">${one.partition}</td><td class="number">${whole(one.next_offset)}</td></tr>`)}</tbody>
        </table>
      </div>
    </details>`;
}

export function Servers({ status, health, server }) {
  const workers = server ? server.processes.length : 0;
  const next = health?.next ? `generation ${health.next.generation ?? ""} is being prepared` : "";
  return html`
    <section aria-labelledby="servers">
      <h2 id="servers">Job and servers</h2>
      <div class="charts">
        ${status && html`
          <div class="card"><h3>Job</h3>${pairs([
            ["Runtime", RUNTIMES[status.runtime] ?? NONE],
            ["Parts", missing(status.parts) ? NONE : whole(status.parts)],
            ["Processes", whole(status.processes)],
            ["Started", missing(status.started_ms) ? null : moment(status.started_ms)],
            ["Job id", status.job_id],
          ])}</div>`}
        <div class="card"><h3>This server</h3>${pairs([
          ["Version", server?.version ?? NONE],
          ["Feeds from", FEEDS[server?.feed] ?? NONE],
          ["Processes", workers ? `${plural(workers, "process", "processes")} (${server.processes.join(", ")})` : NONE],
          ["Arrow Flight", server?.flight ?? null],
          ["HTTP", server?.http ?? null],
          ["Generation", missing(health?.generation) ? null : `${health.generation}${next ? `; ${next}` : ""}`],
          ["Model", server?.model ? html`<code title=${server.model}>${server.model.slice(0, 12)}</code>` : null],
        ])}</div>
      </div>
      ${server && html`<${Kinds} kinds=${server.kinds} />`}
      ${health?.positions?.length > 0 && html`<${Positions} positions=${health.positions} />`}
    </section>`;
}
