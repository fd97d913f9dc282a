// Light or dark: as the system has it, until the switch says otherwise for this visit.
import { html, useEffect, useState } from "./ui.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const changed = new EventTarget();
let chosen = null;

export const isDark = () => (chosen === null ? system.matches : chosen === "dark");

function choose(name) {
  chosen = name;
  document.documentElement.dataset.theme = name;
  changed.dispatchEvent(new Event("change"));
}

export function useTheme() {
  // Whether it is dark; drawn again when that changes.
  const [dark, setDark] = useState(isDark());
  useEffect(() => {
    const look = () => setDark(isDark());
    system.addEventListener("change", look);
    changed.addEventListener("change", look);
    return () => {
      system.removeEventListener("change", look);
      changed.removeEventListener("change", look);
    };
  }, []);
  return dark;
}

export function ThemeSwitch() {
  const dark = useTheme();
  return html`
    <button type="button" class="quiet" aria-pressed=${dark} onClick=${() => choose(dark ? "light" : "dark")}>
      Dark
    </button>`;
}
