// Requests to this server, with the token that a person gave. The token is in this variable alone: not in storage, not
// in a URL, and gone with the page.
let token = "";
let asking = null;
let ask = null; // opens the dialog; token.js sets it
let declined = false;

const TIMEOUT_MS = 10_000;
const REFUSED = "The server does not take this token.";

export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

export const isDown = (error) => error instanceof ApiError && error.status === 0;

export function onToken(open) {
  ask = open;
}

export const isLocked = () => declined; // nobody gave the token that the server wants

export const hasToken = () => token !== "";

export function giveToken() {
  // Asked for by a button after the dialog was closed.
  declined = false;
  unlocking = null;
  return unlocked();
}

function askOnce(problem) {
  asking ??= ask(problem).then((given) => {
    asking = null;
    declined = given === null;
    token = given ?? token;
    return given;
  });
  return asking;
}

let unlocking = null;

function unlocked() {
  // Once: whether the server wants a token, which its health says to everybody; asked before anything is refused.
  unlocking ??= (async () => {
    for (;;) {
      const health = await (await attempt("v1/healthz", {})).json().catch(() => ({}));
      if (Object.keys(health).join() !== "ready" || ask === null) return;
      if (await askOnce(token ? REFUSED : "") === null) return;
    }
  })().catch((error) => {
    unlocking = null;
    throw error;
  });
  return unlocking;
}

export async function send(path, options = {}) {
  // The answer as it is, whatever its status; ApiError with status 0 where there is none.
  await unlocked();
  if (declined) throw new ApiError(401, "unauthorized", "this server asks for a token");
  const sent = token;
  const answer = await attempt(path, options);
  if (answer.status !== 401 || ask === null) return answer;
  if (sent !== token) return send(path, options); // another one was given meanwhile
  const given = await askOnce(sent ? REFUSED : "");
  return given === null ? answer : send(path, options);
}

async function attempt(path, { method = "GET", body, timeout = TIMEOUT_MS }) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(new URL(path, document.baseURI), {
      method, headers, body, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(timeout),
    });
  } catch (error) {
    const why = error.name === "TimeoutError" ? `has not answered within ${timeout / 1000} s` : "does not answer";
    throw new ApiError(0, "no-answer", `the server ${why}`);
  }
}

export async function read(path, options) {
  const answer = await send(path, options);
  let content = null;
  try {
    content = await answer.json();
  } catch {
    if (answer.ok) throw new ApiError(answer.status, "no-json", "the answer is no JSON");
  }
  if (!answer.ok) {
    throw new ApiError(answer.status, content?.kind ?? "", content?.error ?? `the server answered ${answer.status}`);
  }
  return content;
}

export const post = (path, content) => read(path, { method: "POST", body: JSON.stringify(content) });
