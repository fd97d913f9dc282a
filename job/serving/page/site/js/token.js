// The dialog that asks for a token.
import { onToken } from "./api.js";
import { html, useLayoutEffect, useRef, useState } from "./ui.js";

export function TokenDialog() {
  const dialog = useRef(null);
  const field = useRef(null);
  const answer = useRef(null);
  const [problem, setProblem] = useState("");

  useLayoutEffect(() => { // before the first request
    onToken((why) => {
      setProblem(why);
      dialog.current.showModal();
      return new Promise((resolve) => { answer.current = resolve; });
    });
  }, []);

  const end = (given) => {
    field.current.value = "";
    dialog.current.close();
    answer.current?.(given);
    answer.current = null;
  };
  const submit = (event) => {
    event.preventDefault();
    const given = field.current.value.trim();
    if (given) end(given);
  };
  return html`
    <dialog ref=${dialog} aria-labelledby="token-title" onCancel=${(event) => { event.preventDefault(); end(null); }}>
      <form onSubmit=${submit}>
        <h2 id="token-title">This server asks for a token</h2>
        <p>It was started with <code>--token</code>. The page keeps it until you close or reload it, and stores it
          nowhere.</p>
        ${problem && html`<p class="problem" role="alert">${problem}</p>`}
        <label for="token-field">Token</label>
        <input id="token-field" ref=${field} type="password" autocomplete="off" spellcheck=${false} />
        <div class="buttons">
          <button type="submit" class="primary">Continue</button>
          <button type="button" onClick=${() => end(null)}>Cancel</button>
        </div>
      </form>
    </dialog>`;
}
