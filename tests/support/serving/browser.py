"""The page in a real browser: Chromium of the machine, what it asked for and complained about, and axe."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

AXE = "axe-core@4.14.1"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
ANSWER_MS = 60_000  # a machine may be busy with others


def chromium() -> str | None:
    """The browser of this machine; None without one."""
    named = os.environ.get("FRESHET_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def axe_source(folder: Path) -> str | None:
    """The source of axe-core, from npm; None where that is not to be had."""
    found = folder / "package" / "axe.min.js"
    if not found.exists():
        if shutil.which("npm") is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "pack", AXE, "--silent"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        packed = sorted(folder.glob("*.tgz"))
        if done.returncode or not packed:
            return None
        shutil.unpack_archive(packed[0], folder, "gztar", filter="data")
    return found.read_text()


@dataclass
class Visit:
    """A tab, and what went wrong in it."""

    page: Any
    base: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(ANSWER_MS)
        self.page.on("console", lambda one: self._note(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("request", self._seen)

    def _note(self, text: str) -> None:
        self.complaints.append(text)

    def _seen(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.base).netloc:
            self.elsewhere.append(request.url)

    def open(self, path: str = "/", text: str | None = None) -> None:
        """Go there, and wait until `text` is shown."""
        self.page.goto(self.base + path)
        if text is not None:
            self.page.get_by_text(text).first.wait_for()

    def overflow(self) -> int:
        """Pixels by which the document is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def violations(self, axe: str) -> list[str]:
        """What axe finds; evaluated by the debugger, which the page's policy does not bind."""
        if not self.page.evaluate("typeof window.axe !== 'undefined'"):
            self.page.evaluate(axe)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{one['id']}: {node['html'][:160]}" for one in found["violations"] for node in one["nodes"]]


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser of playwright, for tabs of `visiting`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(browser: Any, base: str, **options: Any) -> Iterator[Visit]:
    """A tab that shares nothing with others; `options` are those of a context of playwright."""
    context = browser.new_context(**{"viewport": DESK, **options})
    try:
        yield Visit(context.new_page(), base)
    finally:
        context.close()
