// One vertex: its row, its class, when it changed last, and its neighbours by embedding. #/vertex?kind=user&id=7 is a
// link to it.
import { ApiError, post, read } from "./api.js";
import { clock, duration, epochText, moment, missing, NONE, plural, whole } from "./format.js";
import { useLive } from "./live.js";
import { Bar } from "./operators.js";
import { html, useEffect, useRef, useState } from "./ui.js";

const NEIGHBOURS = 10;
const EVERY_MS = 2_000;

export const linkTo = (id, kind) => `#/vertex?${new URLSearchParams(kind ? { kind, id } : { id })}`;

const number = (value) => (missing(value) ? NONE : Number(value).toPrecision(4));

async function neighboursOf(id, kind) {
  const asked = { id, k: NEIGHBOURS, metric: "cosine", exclude_self: true, ids_as: "string" };
  return (await post("v1/nearest", kind ? { ...asked, kind } : asked)).found;
}

async function rowOf(id, kind) {
  // The row with what the answer says of its epoch; null where there is none.
  const { found, unknown, ...of } = await post("v1/embeddings", { ids: [id], ids_as: "string", ...(kind ? { kind } : {}) });
  return found.length ? { ...of, ...found[0] } : null;
}

function useVertex(id, kind) {
  // The row, asked for again while the page shows it; times and neighbours again when the row has changed.
  const [found, setFound] = useState({});
  useEffect(() => {
    let ended = false;
    let timer = 0;
    const keep = (more) => { if (!ended) setFound((before) => ({ ...before, ...more })); };
    const aside = async (epoch) => {
      await Promise.all([
        read(`v1/epochs/${epoch}${kind ? `?${new URLSearchParams({ kind })}` : ""}`)
          .then((times) => keep({ times }), () => keep({ times: null })),
        neighboursOf(id, kind).then((neighbours) => keep({ neighbours, noNeighbours: "" }),
          (error) => keep({ neighbours: null, noNeighbours: error.message })),
      ]);
    };
    let shown = null;
    const look = async () => {
      try {
        const row = await rowOf(id, kind);
        keep({ row, trouble: "", unknown: row ? "" : `There is no vertex ${JSON.stringify(id)} at this epoch.` });
        if (row && shown !== row.epoch) {
          shown = row.epoch;
          await aside(row.epoch);
        }
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 0) keep({ trouble: error.message });
        else keep({ row: null, neighbours: null, unknown: error.message });
      }
      if (!ended) timer = setTimeout(look, EVERY_MS);
    };
    setFound({});
    if (id !== null) look();
    return () => { ended = true; clearTimeout(timer); };
  }, [id, kind]);
  return found;
}

function Strip({ values }) {
  // The numbers of a row as bars around zero.
  const canvas = useRef(null);
  const finite = values.filter((value) => value !== null);
  const most = finite.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1;
  useEffect(() => {
    const { clientWidth: width, clientHeight: height } = canvas.current;
    const scale = window.devicePixelRatio || 1;
    canvas.current.width = width * scale;
    canvas.current.height = height * scale;
    const context = canvas.current.getContext("2d");
    const style = getComputedStyle(canvas.current);
    context.scale(scale, scale);
    const step = width / values.length;
    values.forEach((value, k) => {
      const size = (value ?? 0) / most * (height / 2 - 1);
      context.fillStyle = style.getPropertyValue(size < 0 ? "--line-b" : "--line-a");
      context.fillRect(k * step, height / 2 - Math.max(size, 0), Math.max(step - 1, 0.5), Math.max(Math.abs(size), 0.5));
    });
  });
  const least = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const top = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const norm = Math.sqrt(finite.reduce((a, b) => a + b * b, 0));
  return html`
    <canvas ref=${canvas} class="strip" aria-hidden="true"></canvas>
    <p class="muted">${plural(values.length, "number")}${finite.length ? `, from ${number(least)} to ${number(top)}; length (L2) ${number(norm)}` : ""}.</p>
    <details><summary>All numbers</summary><pre tabindex="0">${values.map((value) => value ?? "null").join(", ")}</pre></details>`;
}

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = logits.map((one) => Math.exp(one - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((one) => one / sum);
}

function Logits({ row }) {
  const shares = softmax(row.logits);
  const order = row.logits.map((_, k) => k).sort((a, b) => row.logits[b] - row.logits[a]);
  return html`
    <div class="card"><h2>Class ${row.class}</h2>
      <table class="plain">
        <thead><tr><th scope="col">Class</th><td></td><th scope="col" class="number">Softmax</th><th scope="col" class="number">Logit</th></tr></thead>
        <tbody>${order.slice(0, NEIGHBOURS).map((k) => html`
          <tr key=${k}><th scope="row">${k}</th><td class="wide"><${Bar} value=${shares[k]} label=${`class ${k}: softmax`} /></td>
            <td class="number">${(shares[k] * 100).toFixed(1)} %</td><td class="number">${number(row.logits[k])}</td></tr>`)}</tbody>
      </table>
      ${order.length > NEIGHBOURS && html`<p class="muted">The first ${NEIGHBOURS} of ${whole(order.length)} classes.</p>`}
    </div>`;
}

function Neighbours({ neighbours, why, kind }) {
  return html`
    <section aria-labelledby="neighbours">
      <h2 id="neighbours">Neighbours by embedding</h2>
      <p class="sub">The vertices whose rows are nearest by cosine, at the epoch of the answer.</p>
      ${why && html`<p class="notice warn">${why}</p>`}
      ${neighbours && neighbours.length === 0 && html`<p class="sub">There is no other vertex.</p>`}
      ${neighbours && neighbours.length > 0 && html`
        <div class="card scroll" tabindex="0" role="region" aria-label="Nearest vertices">
          <table>
            <thead><tr><th scope="col">Vertex</th><td></td><th scope="col" class="number">Cosine</th>
              ${neighbours[0].class !== undefined && html`<th scope="col" class="number">Class</th>`}
              <th scope="col" class="number">Changed in epoch</th></tr></thead>
            <tbody>${neighbours.map((one) => html`
              <tr key=${one.id}><th scope="row"><a href=${linkTo(one.id, kind)}>${one.id === "" ? "(empty id)" : one.id}</a></th>
                <td class="wide"><${Bar} value=${Math.max(0, one.score)} label=${`${one.id}: cosine`} /></td>
                <td class="number">${missing(one.score) ? NONE : one.score.toFixed(4)}</td>
                ${one.class !== undefined && html`<td class="number">${one.class}</td>`}
                <td class="number">${epochText(one.epoch)}</td></tr>`)}</tbody>
          </table>
        </div>`}
    </section>`;
}

function changedAt(times) {
  const ms = times?.arrived_ms;
  if (missing(ms)) return "";
  return `${moment(ms)}, ${duration((Date.now() - ms) / 1000)} ago`;
}

function Search({ id, kind, kinds }) {
  // `kinds`: those of the server, each with a few ids.
  const several = kinds.length > 1;
  const [chosen, setChosen] = useState(kind ?? kinds[0]?.kind ?? "");
  const some = kinds.find((one) => !several || one.kind === chosen)?.some_ids ?? [];
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    location.hash = linkTo(form.get("id"), several ? form.get("kind") : null);
  };
  return html`
    <form class="search card" onSubmit=${submit}>
      ${several && html`<div><label for="vertex-kind">Kind</label>
        <select id="vertex-kind" name="kind" onChange=${(event) => setChosen(event.target.value)}>
          ${kinds.map((one) => html`<option selected=${one.kind === chosen}>${one.kind}</option>`)}</select></div>`}
      <div class="grow"><label for="vertex-id">Id of a vertex</label>
        <input id="vertex-id" name="id" value=${id ?? ""} autocomplete="off" spellcheck=${false} /></div>
      <button type="submit" class="primary">Show</button>
      ${id === null && some.length > 0 && html`<p class="muted">Such as ${some.map((one, k) => html`${k ? ", " : ""}<a href=${linkTo(one, several ? chosen : null)}>${one}</a>`)}.</p>`}
    </form>`;
}

export function Vertex({ id, kind }) {
  const { server } = useLive();
  const kinds = server?.kinds ?? [];
  const named = kind ?? (kinds.length > 1 ? kinds[0].kind : null);
  const { row, times, neighbours, noNeighbours, trouble, unknown } = useVertex(id, named);
  return html`
    <h1>${id === null ? "Vertex" : html`<span class="muted">${named ?? "vertex"}</span> ${id}`}</h1>
    <${Search} key=${`${kind}/${id}/${kinds.length}`} id=${id} kind=${kind} kinds=${kinds} />
    ${trouble && html`<p class="notice bad" role="status">${trouble}; what stands here may be old.</p>`}
    ${unknown && html`<p class="notice warn" role="status">${unknown}</p>`}
    ${row && html`
      <dl class="tiles">
        <div class="tile"><dt>Changed last</dt><dd><strong>epoch ${epochText(row.epoch)}</strong><small>${changedAt(times)}</small></dd></div>
        <div class="tile"><dt>As of</dt><dd><strong>epoch ${epochText(row.as_of)}</strong><small>${missing(row.as_of_ms) ? `read at ${clock(Date.now())}` : `input up to ${moment(row.as_of_ms)}`}</small></dd></div>
        ${row.class !== undefined && html`<div class="tile"><dt>Class</dt><dd><strong>${row.class}</strong><small>the largest of ${plural(row.logits.length, "logit")}</small></dd></div>`}
      </dl>
      <div class="charts">
        <div class="card"><h2>Embedding</h2><${Strip} values=${row.embedding} /></div>
        ${row.logits && html`<${Logits} row=${row} />`}
      </div>
      <${Neighbours} neighbours=${neighbours} why=${noNeighbours} kind=${named} />`}`;
}
