// Numbers, times and units as people read them.
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const GENERATION = 1e12; // the served epoch of a service is generation x 10^12 + the job's epoch

export const NONE = "–";

export const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export const whole = (value) => (missing(value) ? NONE : grouped.format(value));

export function short(value) {
  // Three digits, for axes and rates: 950, 1.25k, 48.1M.
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) {
      const by = name === "k" ? 1e3 : unit;
      return `${trimmed((value / by).toPrecision(3))}${name}`;
    }
  }
  if (size >= 100 || Number.isInteger(value)) return grouped.format(value);
  return trimmed(value.toPrecision(size >= 1 ? 3 : 2));
}

const trimmed = (digits) => digits.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

export function millis(value) {
  if (missing(value)) return NONE;
  if (value >= 60_000) return duration(value / 1e3);
  if (value >= 1000) return `${trimmed((value / 1e3).toPrecision(3))} s`;
  return `${value >= 100 ? Math.round(value) : trimmed(value.toFixed(value >= 10 ? 1 : 2))} ms`;
}

export function duration(seconds) {
  if (missing(seconds)) return NONE;
  if (seconds < 1) return "less than 1 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

export const percent = (share) => (missing(share) ? NONE : `${Math.round(share * 100)} %`);

const two = (number) => String(number).padStart(2, "0");

export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function moment(ms) {
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return new Date().toDateString() === at.toDateString() ? clock(ms) : `${day} ${clock(ms)}`;
}

export function epochOf(served) {
  // The number of an epoch in its job, and the generation of a service that it is of.
  if (missing(served)) return { epoch: null, generation: null };
  if (served < GENERATION) return { epoch: served, generation: null };
  return { epoch: served % GENERATION, generation: Math.floor(served / GENERATION) };
}

export function epochText(served) {
  const { epoch, generation } = epochOf(served);
  return generation === null ? whole(epoch) : `${whole(epoch)} of generation ${generation}`;
}

export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;
