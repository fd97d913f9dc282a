// The overview: what the job does now, its last hour, operators, rejected records, parts and servers.
import { Chart } from "./chart.js";
import { duration, epochOf, epochText, millis, missing, NONE, plural, short, whole } from "./format.js";
import { useLive } from "./live.js";
import { Operators } from "./operators.js";
import { Rejected } from "./rejected.js";
import { Servers } from "./servers.js";
import { html } from "./ui.js";

const WHAT_TO_DO = {
  stopped: "Its rows stay readable. `freshet run --resume latest`, with the options of its start, goes on.",
  ended: "Its rows are final, and stay readable. `freshet run --resume latest`, with further events, takes in more.",
  failed: "Its rows stay readable as of the epoch below. Mend the cause, then go on with `freshet run --resume latest`; "
    + "its logs are in the folder `logs` of its output folder.",
  lost: "No process works on it, and none has recorded an end, so it was killed. `freshet run --resume latest` goes on.",
};
const NO_JOB = {
  topic: "This server feeds from a Kafka topic, and the folder of the job is not on this machine. The figures here are "
    + "those of the server; `freshet status` on the job's machine has those of the job.",
  servers: "This server feeds from other servers, and the folder of the job is not on this machine. The figures here "
    + "are those of this server; a server on the job's machine shows the job.",
};
const ELSE_NO_JOB = "The folder of the job is not on this machine. The figures here are those of the server.";

export function commands(text) {
  // Text with commands in backquotes.
  return text.split("`").map((part, k) => (k % 2 ? html`<code>${part}</code>` : part));
}

function Tile({ name, value, unit = "", about = "", tone = "" }) {
  return html`
    <div class=${`tile ${tone}`}>
      <dt>${name}</dt>
      <dd><strong>${value}</strong>${unit && html` <span class="unit">${unit}</span>`}
        ${about && html`<small>${about}</small>`}</dd>
    </div>`;
}

function newest(samples, name) {
  return samples.at(-1)?.[name] ?? null;
}

function jobTiles(status, samples) {
  const { epoch, generation } = epochOf(newest(samples, "epoch") ?? status.epoch);
  const running = status.state === "running";
  const lag = missing(status.lag_total) ? status.lag_unknown ?? "" : "records not read yet";
  const mean = missing(status.events_per_s_mean) ? "" : `${short(status.events_per_s_mean)} a second on average`;
  return html`
    <${Tile} name="Epoch" value=${whole(epoch)} about=${generation === null ? "newest that readers get" : `of generation ${generation}`} />
    <${Tile} name="Freshness" value=${millis(status.freshness_ms_p50)} about=${`99 % within ${millis(status.freshness_ms_p99)}`} />
    <${Tile} name="Events" value=${running ? short(status.events_per_s) : whole(status.events)}
      unit=${running ? "a second" : ""} about=${running ? `${whole(status.events)} in all` : mean} />
    <${Tile} name="Lag" value=${missing(status.lag_total) ? "not known" : whole(status.lag_total)} about=${lag} />
    <${Tile} name="Rejected" value=${whole(status.rejected)} tone=${status.rejected ? "warn" : ""} about=${status.events ? `${(100 * status.rejected / status.events).toPrecision(2)} % of events` : ""} />
    <${Tile} name="Vertices" value=${whole(status.vertices)} about=${`${whole(status.rows)} rows written`} />
    <${Tile} name="Checkpoint" value=${missing(status.checkpoint_age_s) ? "none yet" : duration(status.checkpoint_age_s)}
      about=${missing(status.checkpoint_age_s) ? "" : "age of the newest"} />
    <${Tile} name="Reads" value=${short(newest(samples, "reads_per_s"))} unit="a second" about="answered by this server" />`;
}

function serverTiles(health, samples) {
  return html`
    <${Tile} name="Epoch" value=${epochText(health?.epoch)} about=${health?.consistency === "row" ? "each row is the newest of its vertex" : "newest that readers get"} />
    <${Tile} name="Vertices" value=${whole(health?.vertices)} about="in the table" />
    <${Tile} name="Behind" value=${missing(health?.behind_s) ? NONE : `${health.behind_s.toFixed(1)} s`} about="since something was heard" />
    <${Tile} name="Reads" value=${short(newest(samples, "reads_per_s"))} unit="a second" />`;
}

function Head({ status, health, server }) {
  if (status) {
    return html`
      <section class=${`card head ${status.state}`} aria-labelledby="job-name">
        <h1 id="job-name">${status.name}</h1>
        <p><span class=${`pill ${status.state}`}>${status.state}</span> <span class="detail">${status.detail}</span></p>
        ${WHAT_TO_DO[status.state] && html`<p class="advice">${commands(WHAT_TO_DO[status.state])}</p>`}
      </section>`;
  }
  const ready = health?.ready;
  return html`
    <section class="card head" aria-labelledby="job-name">
      <h1 id="job-name">${server?.feed === "topic" ? "Embeddings from a topic" : "Embeddings"}</h1>
      <p><span class=${`pill ${ready ? "running" : "lost"}`}>${ready ? "ready" : "not ready"}</span>
        <span class="detail">${health?.reason ?? ""}</span></p>
      <p class="advice"><strong>No job is here.</strong> ${NO_JOB[server?.feed] ?? ELSE_NO_JOB}</p>
    </section>`;
}

function epochRates(samples) {
  // Epochs a second between neighbouring samples.
  return samples.map((one, k) => {
    const before = samples[k - 1];
    const seconds = before ? (one.time_ms - before.time_ms) / 1000 : 0;
    const grown = before && !missing(one.epoch) && !missing(before.epoch) && one.generation === before.generation;
    return { ...one, epochs_per_s: grown && seconds > 0 ? Math.max(0, (one.epoch - before.epoch) / seconds) : null };
  });
}

const perSecond = (value) => `${short(value)}/s`;
const seconds = (value) => (missing(value) ? NONE : `${value.toFixed(value < 10 ? 1 : 0)} s`);

function JobCharts({ samples }) {
  return html`
    <${Chart} title="Freshness" about="From the arrival of an event until others can read its rows." samples=${samples}
      format=${millis} log series=${[
        { label: "99 %", color: "--line-b", of: (one) => one.freshness_ms_p99 },
        { label: "median", color: "--line-a", of: (one) => one.freshness_ms_p50, fill: true },
      ]} />
    <${Chart} title="Throughput" about="Events read." samples=${samples} format=${perSecond}
      series=${[{ label: "events", color: "--line-a", of: (one) => one.events_per_s, fill: true }]} />
    <${Chart} title="Rows" about="Rows of vertices that changed." samples=${samples} format=${perSecond}
      series=${[{ label: "rows", color: "--line-a", of: (one) => one.rows_per_s, fill: true }]} />
    <${Chart} title="Lag" about="Records of the input that are not read yet." samples=${samples}
      format=${short} series=${[{ label: "records", color: "--line-a", of: (one) => one.lag, fill: true }]} />
    <${Chart} title="Rejected" about="Records rejected since the job began." samples=${samples} format=${whole}
      series=${[{ label: "records", color: "--line-b", of: (one) => one.rejected, fill: true }]} />
    <${Chart} title="Reads" about="Lookups, neighbours and scores that this server answered." samples=${samples}
      format=${perSecond} series=${[{ label: "reads", color: "--line-a", of: (one) => one.reads_per_s, fill: true }]} />`;
}

function ServerCharts({ samples }) {
  return html`
    <${Chart} title="Epochs" about="New epochs that readers get." samples=${epochRates(samples)} format=${perSecond}
      series=${[{ label: "epochs", color: "--line-a", of: (one) => one.epochs_per_s, fill: true }]} />
    <${Chart} title="Behind" about="Since something was heard of the job." samples=${samples} format=${seconds}
      series=${[{ label: "behind", color: "--line-a", of: (one) => one.behind_s, fill: true }]} />
    <${Chart} title="Reads" about="Lookups, neighbours and scores that this server answered." samples=${samples}
      format=${perSecond} series=${[{ label: "reads", color: "--line-a", of: (one) => one.reads_per_s, fill: true }]} />`;
}

export function Overview() {
  const { samples, status, noJob, health, server, rejected, noRejected } = useLive();
  if (!health && !status) return html`<p class="loading">Waiting for the first figures.</p>`;
  const stale = health && !health.ready && status?.state === "running";
  const rejectedHour = samples.length > 1 ? newest(samples, "rejected") - samples[0].rejected : null;
  const span = samples.length > 1 ? duration((samples.at(-1).time_ms - samples[0].time_ms) / 1000) : "";
  return html`
    <${Head} status=${status} health=${health} server=${server} />
    ${!status && noJob && server?.job_here && html`<p class="notice warn">${noJob}</p>`}
    ${stale && html`<p class="notice warn" role="status">The rows are not fresh: ${health.reason}. What is read is of epoch ${epochText(health.epoch)}.</p>`}
    <dl class="tiles">${status ? jobTiles(status, samples) : serverTiles(health, samples)}</dl>
    <section aria-labelledby="hour">
      <h2 id="hour">The last hour</h2>
      <p class="sub">${samples.length > 1
        ? `${plural(samples.length, "sample")}, one a second, since this server began or for an hour.`
        : "The first samples come in a moment."}</p>
      <div class="charts">${status ? html`<${JobCharts} samples=${samples} />` : html`<${ServerCharts} samples=${samples} />`}</div>
    </section>
    ${status && html`<${Operators} status=${status} />`}
    ${status && html`<${Rejected} status=${status} rejected=${rejected} why=${noRejected} lately=${rejectedHour} span=${span} />`}
    <${Servers} status=${status} health=${health} server=${server} />`;
}
