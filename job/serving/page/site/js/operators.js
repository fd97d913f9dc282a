// Operators by their busy share, the busiest first: where the time goes.
import { missing, NONE, percent, short } from "./format.js";
import { html } from "./ui.js";

const share = (load) => load.busy ?? load.busy_mean ?? -1;

export function Bar({ value, label }) {
  return html`<meter class="bar" min="0" max="1" value=${missing(value) ? 0 : value} aria-label=${label}></meter>`;
}

function Row({ name, load }) {
  return html`
    <tr>
      <th scope="row">${name}${load.topic && html`<small>${load.topic}</small>`}</th>
      <td class="wide"><${Bar} value=${load.busy ?? load.busy_mean} label=${`${name}: busy`} /></td>
      <td class="number">${percent(load.busy)}</td>
      <td class="number">${percent(load.busy_mean)}</td>
      <td class="number">${percent(load.blocked)}</td>
      <td class="number">${load.subtasks}</td>
      <td class="number">${missing(load.messages_per_s) ? NONE : short(load.messages_per_s)}</td>
    </tr>`;
}

export function Operators({ status }) {
  const loads = Object.entries(status.operators).sort(([, one], [, other]) => share(other) - share(one));
  return html`
    <section aria-labelledby="operators">
      <h2 id="operators">Operators</h2>
      ${loads.length === 0
        ? html`<p class="sub">Nothing has been measured of the operators yet.</p>`
        : html`
          <p class="sub">By the share of time in which they work. One that is near 100 % is what the others wait for.</p>
          <div class="card scroll" tabindex="0" role="region" aria-label="Operators by busy share">
            <table>
              <thead><tr>
                <th scope="col">Operator</th><td></td><th scope="col" class="number">Busy</th>
                <th scope="col" class="number">Mean</th><th scope="col" class="number">Waits</th>
                <th scope="col" class="number">Subtasks</th><th scope="col" class="number">Messages/s</th>
              </tr></thead>
              <tbody>${loads.map(([name, load]) => html`<${Row} key=${name} name=${name} load=${load} />`)}</tbody>
            </table>
          </div>`}
    </section>`;
}
