// A chart of the last hour with its legend, and the same in words.
import { clock, duration, missing } from "./format.js";
import { useTheme } from "./theme.js";
import { html, useEffect, useMemo, useRef, useState } from "./ui.js";

const HEIGHT = 170;
const GAP_S = 5; // samples that are further apart are not joined
const LEAST_S = 60; // that a chart shows
const FONT = "12px system-ui, sans-serif";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function columns(samples, series) {
  // uPlot's data: seconds, then a column for each line, with a gap where samples are missing.
  const found = [[], ...series.map(() => [])];
  let before = null;
  for (const sample of samples) {
    const time = sample.time_ms / 1000;
    if (before !== null && time - before > GAP_S) {
      found[0].push(before + 1);
      series.forEach((_, k) => found[k + 1].push(null));
    }
    found[0].push(time);
    series.forEach((one, k) => found[k + 1].push(one.of(sample) ?? null));
    before = time;
  }
  return found;
}

function heights(log) {
  // The vertical scale: from 0, or by powers of ten where values are far apart.
  if (log) return { distr: 3, range: (_, least, most) => window.uPlot.rangeLog(least ?? 1, most ?? 100, 10, false) };
  return { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.1 : 1] };
}

function options(series, format, log, width) {
  const grid = { stroke: style("--grid"), width: 1 };
  const axis = { stroke: style("--muted"), font: FONT, grid, ticks: { show: false } };
  return {
    width, height: HEIGHT,
    padding: [10, 12, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "hour" }, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true, range: (_, least, most) => [Math.min(least ?? 0, (most ?? 0) - LEAST_S), most ?? 1] },
      y: heights(log),
    },
    axes: [
      { ...axis, size: 26, space: 70, values: (_, splits) => splits.map((at) => clock(at * 1000).slice(0, 5)), incrs: [60, 120, 300, 600, 900, 1800] },
      { ...axis, size: 62, space: 36, values: (_, splits) => splits.map((value) => (value === null ? null : format(value))) },
    ],
    series: [{}, ...series.map((one) => ({
      label: one.label, stroke: style(one.color), width: 1.75, spanGaps: false, points: { show: false },
      fill: one.fill ? `${style(one.color)}22` : undefined,
    }))],
  };
}

export function words(samples, series, format) {
  // What the chart shows, for those who do not see it: the newest values, and between which they were.
  if (samples.length === 0) return "Nothing was sampled yet.";
  const span = duration((samples.at(-1).time_ms - samples[0].time_ms) / 1000);
  return series.map((one) => {
    const values = samples.map(one.of).filter((value) => !missing(value));
    if (values.length === 0) return `${one.label}: not known.`;
    const least = values.reduce((a, b) => Math.min(a, b));
    const most = values.reduce((a, b) => Math.max(a, b));
    const last = one.of(samples.at(-1));
    const now = missing(last) ? "now not known" : `now ${format(last)}`;
    if (least === most) return `${one.label}: ${format(least)} throughout the last ${span}.`;
    return `${one.label}: ${now}; ${format(least)} to ${format(most)} in the last ${span}.`;
  }).join(" ");
}

export function Chart({ title, about, samples, series, format, log = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const dark = useTheme();
  const [under, setUnder] = useState(null); // index of the sample under the pointer
  const data = useMemo(() => columns(samples, series), [samples]);

  useEffect(() => {
    const made = options(series, format, log, box.current.clientWidth);
    made.hooks = { setCursor: [(one) => setUnder(one.cursor.idx ?? null)] };
    plot.current = new window.uPlot(made, data, box.current);
    const sized = new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width > 0) plot.current.setSize({ width: contentRect.width, height: HEIGHT });
    });
    sized.observe(box.current);
    return () => { sized.disconnect(); plot.current.destroy(); };
  }, [dark]);
  useEffect(() => plot.current.setData(data), [data]);

  const at = under !== null && under < data[0].length ? under : data[0].length - 1;
  return html`
    <figure class="card chart">
      <h3>${title}</h3>
      <p class="legend" aria-hidden="true">
        ${series.map((one) => html`<span><i class=${`swatch ${one.color.slice(2)}`}></i>${one.label}
          <b>${format(data[1 + series.indexOf(one)][at])}</b></span>`)}
        ${under !== null && at >= 0 && html`<span class="at">${clock(data[0][at] * 1000)}</span>`}
      </p>
      <div ref=${box} class="plot" aria-hidden="true"></div>
      <figcaption>${about} ${words(samples, series, format)}</figcaption>
    </figure>`;
}
