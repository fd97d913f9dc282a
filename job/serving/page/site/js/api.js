// Requests to this server, with the token that a person gave. The token is in this variable alone: not in storage, not
// in a URL, and gone with the page.
let token = "";
let asking = null;
let ask = null; // opens the dialog; token.js sets it
let declined = false;

const TIMEOUT_MS = 10_000;

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

export const hasToken = () => token !== "";

export function giveToken() {
  // Asked for by a button after the dialog was closed.
  declined = false;
  return askOnce("");
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

export async function send(path, { method = "GET", body, timeout = TIMEOUT_MS } = {}) {
  // The answer as it is, whatever its status; ApiError with status 0 where there is none.
  const headers = { Accept: "application/json" };
  const sent = token;
  if (sent) headers.Authorization = `Bearer ${sent}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), {
      method, headers, body, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(timeout),
    });
  } catch (error) {
    const why = error.name === "TimeoutError" ? `has not answered within ${timeout / 1000} s` : "does not answer";
    throw new ApiError(0, "no-answer", `the server ${why}`);
  }
  if (answer.status !== 401 || declined || ask === null) return answer;
  if (sent !== token) return send(path, { method, body, timeout }); // another one was given meanwhile
  const given = await askOnce(sent ? "The server does not take this token." : "");
  return given === null ? answer : send(path, { method, body, timeout });
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
