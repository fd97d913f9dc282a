"""The page in a browser, on a job of the local runtime that runs, and its server with two processes and a token."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
import pytest

from freshet.job.folder import run_file
from freshet.job.machine.ports import server_port
from freshet.job.serving.doors.answering import Answering, Doors
from tests.support.runs.jobs import Job, make_input
from tests.support.serving.browser import DESK, PHONE, Visit, axe_source, browsing, chromium, visiting
from tests.support.serving.served import Served
from tests.support.serving.server import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine (FRESHET_CHROMIUM names one)"),
]
SLOW = {"slow": {"parser": 800}, "chunk": 50}  # a stream that lasts
TOKEN = "a token that nobody guesses"
BAD = b'{"op":"add_vertex","id":1,"x":[1.0]}\nnot JSON <script>alert(1)</script>\n'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server's HTTP, of a job that goes on reading."""
    folder = tmp_path_factory.mktemp("page")
    given = make_input(folder, 20_000)
    given.events.write_bytes(BAD + given.events.read_bytes())
    job, server = Job(given, folder / "out"), Server(folder / "out")
    try:
        job.start("--runtime", "local", "--name", "payments", faults=SLOW)
        told = server.start("--workers", "2", "--token", TOKEN)
        yield f"http://{told['http']}"
        assert job.processes[-1].poll() is None, "the stream was too short for this test"
    finally:
        server.end()
        job.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    return axe_source(tmp_path_factory.mktemp("axe"))


def unlock(visit: Visit) -> None:
    visit.page.get_by_role("textbox", name="Token").fill(TOKEN)
    visit.page.keyboard.press("Enter")


def test_the_page_asks_for_a_token_and_keeps_it_nowhere(running: str, browser: Any) -> None:
    with visiting(browser, running) as visit:
        visit.open("/", "This server asks for a token")
        visit.page.get_by_role("textbox", name="Token").fill("wrong")
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("does not take this token").wait_for()
        visit.page.keyboard.press("Escape")
        visit.page.get_by_role("button", name="Enter a token").click()
        unlock(visit)
        visit.page.get_by_text("The last hour").wait_for()
        kept = visit.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie, location.href]")
        assert kept == [0, 0, "", f"{running}/"]
        assert visit.page.evaluate("indexedDB.databases().then((found) => found.length)") == 0
        assert TOKEN not in visit.page.content()
        assert not visit.complaints
        visit.page.reload()
        visit.page.get_by_text("This server asks for a token").wait_for()


@pytest.mark.parametrize(
    ("path", "text"), [("/", "The last hour"), ("/#/vertex?id=2", "Neighbours by embedding"), ("/docs", "Answers")]
)
def test_light_and_dark_at_a_desk_and_on_a_phone(
    running: str, browser: Any, axe: str | None, path: str, text: str
) -> None:
    with visiting(browser, running) as visit:
        visit.open(path)
        unlock(visit)
        visit.page.get_by_text(text).first.wait_for()
        if "vertex" in path:
            nearest(visit)
        for scheme, view in product(("light", "dark"), (DESK, PHONE)):
            visit.page.emulate_media(color_scheme=scheme)
            visit.page.set_viewport_size(view)
            visit.page.wait_for_timeout(400)  # charts are drawn again, and colours fade
            assert visit.overflow() <= 0
            if axe is not None:
                assert visit.violations(axe) == []
        assert not visit.complaints
        assert not visit.elsewhere
    if axe is None:
        pytest.skip("axe-core could not be fetched by npm; all else was looked at")


def nearest(visit: Visit) -> None:
    visit.page.get_by_role("region", name="Nearest vertices").get_by_role("row").nth(10).wait_for()


def test_what_the_page_shows(running: str, browser: Any) -> None:
    with visiting(browser, running) as visit:
        visit.open("/")
        unlock(visit)
        page = visit.page
        page.get_by_role("heading", name="payments").wait_for()
        page.get_by_text("running", exact=True).wait_for()
        for title in ("Freshness", "Throughput", "Rows", "Lag", "Rejected", "Reads"):
            figure = page.get_by_role("figure").filter(has=page.get_by_role("heading", name=title))
            assert figure.locator("canvas").count() == 1
            assert "throughout" in figure.inner_text() or "in the last" in figure.inner_text()
        page.get_by_role("row", name="x: expected 6 numbers").wait_for()
        page.get_by_text("not JSON <script>alert(1)</script>").wait_for()
        assert page.get_by_role("region", name="Operators by busy share").get_by_role("row").count() > 3
        # by the keyboard alone: to a vertex that was named, and on to its nearest one
        page.get_by_role("link", name="Vertex").press("Enter")
        page.get_by_label("Id of a vertex").fill("2")
        page.keyboard.press("Enter")
        nearest(visit)
        assert page.url == f"{running}/#/vertex?id=2"
        page.get_by_role("region", name="Nearest vertices").get_by_role("link").first.press("Enter")
        page.wait_for_url(lambda url: url != f"{running}/#/vertex?id=2")
        nearest(visit)
        page.get_by_label("Id of a vertex").fill("123456789")
        page.keyboard.press("Enter")
        page.get_by_text('There is no vertex "123456789"').wait_for()
        dark = page.get_by_role("button", name="Dark")
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark.press("Enter")
        assert dark.get_attribute("aria-pressed") == "true"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert not visit.complaints


def test_the_reference_tries_an_operation(running: str, browser: Any) -> None:
    with visiting(browser, running) as visit:
        visit.open("/docs")
        unlock(visit)
        section = visit.page.locator("#get_history")
        section.get_by_text("Try it").click()
        section.get_by_role("button", name="Send").click()
        section.get_by_text('"samples"').first.wait_for()
        assert TOKEN not in visit.page.content()
        assert not visit.complaints


def test_a_server_that_is_gone_is_said_plainly(running: str, browser: Any) -> None:
    with visiting(browser, running) as visit:
        visit.open("/")
        unlock(visit)
        visit.page.get_by_text("The last hour").wait_for()
        visit.page.context.set_offline(True)
        visit.page.get_by_role("alert").get_by_text("No connection").wait_for()
        assert "stale" in visit.page.locator("html").get_attribute("class")
        visit.page.context.set_offline(False)
        visit.page.get_by_role("alert").wait_for(state="detached")


def test_all_processes_answer_the_same(running: str) -> None:
    headers, seen = {"Authorization": f"Bearer {TOKEN}"}, []
    deadline = time.monotonic() + 60
    while len(seen) < 12:
        assert time.monotonic() < deadline
        with httpx.Client(base_url=running, headers=headers, trust_env=False) as client:  # whichever process takes it
            samples = client.get("/v1/history").json()["samples"]
            assert client.get("/v1/status").json()["state"] == "running"
            seen.append({one["time_ms"]: one for one in samples})
    for earlier, later in pairwise(seen):
        assert earlier.items() <= later.items()


def test_the_browser_is_told_what_it_may_do(running: str, browser: Any) -> None:
    answer = httpx.get(running, trust_env=False)
    assert "unsafe" not in answer.headers["content-security-policy"]
    with visiting(browser, running) as visit:
        visit.open("/")
        refused = visit.page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            " document.body.append(s); return window.ran === undefined; }"
        )
        assert refused
        assert len(visit.complaints) == 1


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server in this process, and the folder of its job, whose state a test sets."""
    one = Served(tmp_path_factory.mktemp("states") / "O", "int")
    try:
        doors = Doors("127.0.0.1", (server_port(),), server_port(), (), None, None)
        answering = Answering(doors, 0, one.lookup, one.health)
        answering.start()
        yield f"http://127.0.0.1:{doors.http_port}", one.hand.out
        answering.stop()
    finally:
        one.close()


def test_a_job_that_does_not_run_says_what_to_do(by_hand: tuple[str, Path], browser: Any) -> None:
    base, out = by_hand
    run_file.update_run(out, runtime="local", started_ms=1, parts=2)
    gone = {"host": socket.gethostname(), "pids": {"client": 2**22 - 1}}
    states = {
        "stopped": ({"state": run_file.STOPPED}, "goes on"),
        "ended": ({"state": run_file.FINISHED}, "Its rows are final"),
        "failed": ({"state": run_file.FAILED, "error": "EventFileError: no such file"}, "EventFileError: no such file"),
        "lost": ({"state": run_file.RUNNING, **gone}, "is gone (killed?)"),
    }
    with visiting(browser, base) as visit:
        visit.open("/")
        for state, (told, text) in states.items():
            run_file.update_run(out, **told)
            visit.page.get_by_text(state, exact=True).wait_for()
            visit.page.get_by_text(text).first.wait_for()
            visit.page.get_by_text("freshet run --resume latest").first.wait_for()
        assert not visit.complaints
        (out / "job").rename(out / "elsewhere")
        visit.page.reload()
        visit.page.get_by_text("No job is here.").wait_for()
        for title in ("Epochs", "Behind", "Reads"):
            visit.page.get_by_role("heading", name=title, exact=True).wait_for()
        visit.page.wait_for_timeout(2500)
        assert not visit.complaints
        assert visit.overflow() <= 0
