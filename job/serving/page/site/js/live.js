// What the page shows, asked for again and again while somebody can see it.
import { ApiError, isDown, isLocked, read } from "./api.js";
import { useEffect, useState } from "./ui.js";

const EVERY_MS = 2_000;
const SLOW_EVERY = 5; // rounds between two looks at what rarely changes
const MOST_MS = 15_000; // between two tries of a server that does not answer
const HOUR_MS = 3_600_000;
const LETTERS = 20;

export const state = {
  samples: [], status: null, noJob: "", health: null, server: null, rejected: null, noRejected: "",
  answeredMs: 0, trouble: "", denied: false,
};
const changed = new EventTarget();

function tell() {
  changed.dispatchEvent(new Event("change"));
}

async function tried(path, keep, refuse) {
  try {
    keep(await read(path));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (isDown(error)) throw error;
    if (error.status === 401) state.denied = true;
    refuse?.(error);
  }
}

async function samples() {
  const last = state.samples.at(-1)?.time_ms ?? 0;
  await tried(`v1/history?since_ms=${last}`, ({ samples: found }) => {
    const newest = found.at(-1)?.time_ms ?? last;
    state.samples = [...state.samples, ...found].filter((one) => one.time_ms > newest - HOUR_MS);
  });
}

async function round(number) {
  state.denied = false;
  const slow = number % SLOW_EVERY === 0;
  if (slow) await tried("v1/server", (found) => { state.server = found; });
  await Promise.all([
    samples(),
    tried("v1/healthz", (found) => { state.health = found; }),
    state.server?.job_here && tried("v1/status", (found) => { state.status = found; state.noJob = ""; }, (error) => {
      if (error.status === 404 || error.status === 403) state.status = null;
      state.noJob = error.message;
    }),
    slow && state.server?.letters_here && !state.noRejected && tried(`v1/rejected?limit=${LETTERS}`, (found) => { state.rejected = found; state.noRejected = ""; },
      (error) => { state.rejected = null; state.noRejected = error.message; }),
  ]);
}

export async function follow() {
  // Never returns.
  let failures = 0;
  for (let number = 0; ; number += 1) {
    if (document.hidden) {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    }
    try {
      if (isLocked()) state.denied = true;
      else await round(failures || state.answeredMs === 0 ? 0 : number);
      failures = 0;
      state.trouble = "";
      if (!state.denied) state.answeredMs = Date.now();
    } catch (error) {
      failures += 1;
      state.trouble = error.message;
    }
    tell();
    await new Promise((resolve) => setTimeout(resolve, Math.min(EVERY_MS * 2 ** failures, failures ? MOST_MS : EVERY_MS)));
  }
}

export function useLive() {
  const [, setRound] = useState(0);
  useEffect(() => {
    const look = () => setRound((number) => number + 1);
    changed.addEventListener("change", look);
    return () => changed.removeEventListener("change", look);
  }, []);
  return state;
}
