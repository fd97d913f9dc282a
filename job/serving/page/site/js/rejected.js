// Records that were not taken: by reason, and the newest ones as they came.
import { percent, plural, whole } from "./format.js";
import { html } from "./ui.js";

const OPEN = 3; // examples that are shown at once

function Letter({ letter }) {
  const raw = letter.raw ?? letter.raw_base64 ?? "";
  const length = letter.raw_length ?? letter.raw_base64_length;
  return html`
    <li>
      <p><strong>${letter.error}</strong></p>
      <p class="muted">${letter.source}, partition ${letter.partition}, record ${whole(letter.offset)}${letter.records ? `, and ${plural(letter.records - 1, "more", "more")}` : ""}</p>
      <pre tabindex="0">${raw}${length ? `\n… ${whole(length)} characters in all` : ""}</pre>
      ${letter.raw_base64 !== undefined && html`<p class="muted">In base64: it is no UTF-8.</p>`}
    </li>`;
}

function Newest({ rejected }) {
  const first = rejected.letters.slice(0, OPEN);
  const others = rejected.letters.slice(OPEN);
  const dropped = rejected.dropped ? `; ${plural(rejected.dropped, "older one is", "older ones are")} in no file any more` : "";
  const listed = (letters) => html`<ol class="letters">${letters.map((letter) => html`
    <${Letter} key=${`${letter.source}/${letter.partition}/${letter.offset}`} letter=${letter} />`)}</ol>`;
  return html`
    <div class="card">
      <h3>The newest, as they came</h3>
      <p class="muted">From ${rejected.file}${dropped}.</p>
      ${listed(first)}
      ${others.length > 0 && html`<details><summary>${plural(others.length, "more", "more")}</summary>${listed(others)}</details>`}
    </div>`;
}

export function Rejected({ status, rejected, why, lately, span }) {
  const reasons = Object.entries(status.reasons);
  if (status.rejected === 0) {
    return html`
      <section aria-labelledby="rejected">
        <h2 id="rejected">Rejected records</h2>
        <p class="sub">None. Every record that came was taken.</p>
      </section>`;
  }
  return html`
    <section aria-labelledby="rejected">
      <h2 id="rejected">Rejected records</h2>
      <p class="sub">${plural(status.rejected, "record")} since the job began${span ? `, ${whole(lately)} of them in the last ${span}` : ""}.</p>
      <div class="card scroll" tabindex="0" role="region" aria-label="Records by reason">
        <table>
          <thead><tr><th scope="col">Reason</th><th scope="col" class="number">Records</th><th scope="col" class="number">Share</th></tr></thead>
          <tbody>${reasons.map(([reason, count]) => html`
            <tr key=${reason}><th scope="row" class="text">${reason}</th><td class="number">${whole(count)}</td>
              <td class="number">${percent(count / status.rejected)}</td></tr>`)}</tbody>
        </table>
      </div>
      ${why && html`<p class="sub">Examples: ${why}</p>`}
      ${rejected && rejected.letters.length > 0 && html`<${Newest} rejected=${rejected} />`}
    </section>`;
}
