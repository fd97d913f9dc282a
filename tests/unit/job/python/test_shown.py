"""What is shown of results and of progress, and what the end of a process means."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from freshet import EmbeddingClient
from freshet.errors import CheckFailedError, JobFailedError, UsageError
from freshet.job.python.display import line_of, share_of, showing
from freshet.job.python.process import complaint_of, error_of
from freshet.job.python.result import CommandResult

STATUS: dict[str, Any] = {"state": "running", "events": 750, "events_per_s": 10.0, "epoch": 3, "rows": 5}
STATUS |= {"lag_total": 250, "freshness_ms_p50": 2.5, "freshness_ms_p99": None, "rejected": 0}


def test_figures_are_items_and_attributes() -> None:
    found = CommandResult.of(
        "freshet run", {"events": 1_000, "reasons": {"<b>": 2}, "latency_ms_p50": None, "ok": True}
    )
    assert found.events == found["events"] == 1_000 and found == dict(found)
    assert "events                   1,000" in repr(found) and "reasons                  <b>: 2" in repr(found)
    assert "&lt;b&gt;: 2" in found._repr_html_() and "<b>:" not in found._repr_html_()
    assert "events" in dir(found)
    with pytest.raises(AttributeError, match="no figure 'rows'; there are events, reasons"):
        _ = found.rows


def test_progress_is_a_bar_and_the_line_of_the_command() -> None:
    assert share_of(STATUS) == 0.75
    assert line_of(STATUS).startswith("[##################      ]  75%  running  events 750  events/s 10  epoch 3")
    assert share_of(STATUS | {"lag_total": None}) is None
    assert line_of(STATUS | {"lag_total": None}).startswith("running  events 750")
    assert share_of(STATUS | {"events": 0, "lag_total": 0}) == 0.0
    assert share_of(STATUS | {"state": "ended"}) == 1.0
    assert line_of({"state": "starting"}) == "starting"


class ZMQInteractiveShell:
    """The shell of a notebook, by its name."""


class Output:
    """An output of a notebook, and what was shown in it."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def display(self, shown: Any, display_id: bool) -> Output:
        assert display_id
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.shown.append(shown)


def test_progress_in_a_notebook_replaces_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    output, job = Output(), object()
    notebook, display = ModuleType("IPython"), ModuleType("IPython.display")
    notebook.get_ipython, display.display = ZMQInteractiveShell, output.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    shown = showing(job)
    shown.update(STATUS)
    shown.close()
    assert output.shown == [job] * 3


def test_progress_elsewhere_is_a_line_of_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    shown = showing(object())
    shown.update(STATUS)
    shown.close()
    said = capsys.readouterr()
    assert said.out == "" and "75%  running  events 750" in said.err and said.err.count("\n") == 1


def test_a_client_says_what_it_reads() -> None:
    client = EmbeddingClient("127.0.0.1:9", kind="<user>")
    assert repr(client) == "Embeddings of <user> at 127.0.0.1:9, no answer read yet"
    assert "&lt;user&gt;" in client._repr_html_() and "<user>" not in client._repr_html_()


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ("prepared\nfreshet: --parts: got 0\nfreshet: --memory: got 1\n", "--parts: got 0\n--memory: got 1"),
        ("freshet: a warning\nprepared\nfreshet: the disk is full\n", "the disk is full"),
        ('{"level":"info","event":"a"}\n{"level":"error","event":"the disk is full"}\n', "the disk is full"),
        ("Traceback\nKilled", "Killed"),
        ("{broken", "{broken"),
        ("", ""),
    ],
)
def test_the_complaint_of_a_process_is_at_the_end_of_its_log(log: str, complaint: str) -> None:
    assert complaint_of(log) == complaint


def test_exit_codes_are_errors() -> None:
    wrong = error_of(2, "--parts: got 0")
    assert isinstance(wrong, UsageError) and wrong.option == "--parts"
    failed = error_of(3, "the disk is full")
    assert isinstance(failed, JobFailedError) and (str(failed), failed.exit_code) == ("the disk is full", 3)
    killed = error_of(-9, "")
    assert isinstance(killed, JobFailedError) and killed.exit_code == 137 and "killed by SIGKILL" in str(killed)
    check = error_of(1, "no record was accepted", {"events": 3})
    assert isinstance(check, CheckFailedError) and check.result == {"events": 3} and check.exit_code == 1
