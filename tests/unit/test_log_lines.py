"""The lines of standard error as JSON objects, whoever writes them."""

import io
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from freshet import log_lines
from freshet.job import cli
from freshet.job.commands import compact as command
from freshet.job.console import ProgressDisplay, Stats, say


@pytest.fixture(autouse=True)
def _text_after(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    monkeypatch.setenv("FRESHET_LOG_FORMAT", "text")  # so that it is put back
    yield
    log_lines.log_as("text")


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    for one in found:
        assert datetime.fromisoformat(one.pop("time")).utcoffset() is not None
    return found


def test_what_any_code_prints_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.log_as("json")
    print("from", "a library", file=sys.stderr)
    print("two\nlines\n\n", file=sys.stderr, end="")
    say("restarted", "warning", restarts=2)
    assert objects(capsys) == [
        {"level": "info", "event": "from a library"},
        {"level": "info", "event": "two"},
        {"level": "info", "event": "lines"},
        {"level": "warning", "event": "restarted", "restarts": 2},
    ]


def test_progress_has_its_figures_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.log_as("json")
    with ProgressDisplay() as bar:
        bar.update(Stats(events=12_345, events_per_s=6.5, epoch=3, rows=9))
    with ProgressDisplay("embed") as bar:
        bar.update("layer 1 of 2")
    first, second = objects(capsys)
    assert (first["event"], first["of"], first["events"], first["latency_ms_p50"]) == (
        "progress",
        "freshet",
        12_345,
        None,
    )
    assert second == {"level": "info", "event": "progress", "of": "embed", "text": "layer 1 of 2"}


def test_text_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    say("restarted", "warning", restarts=2)
    assert capsys.readouterr().err == "restarted\n"


def test_a_stream_that_was_given_keeps_text() -> None:
    log_lines.log_as("json")
    stream = io.StringIO()
    with ProgressDisplay(stream=stream) as bar:
        bar.update("layer 1 of 2")
    assert stream.getvalue().endswith("freshet  layer 1 of 2\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serve", "--tables", "/nowhere", "--log-format=json"], "--tables /nowhere: "),
        (["serve", "--log-format", "json", "--tabls", "nowhere"], "No such option: --tabls"),
        (["run", "--log-format", "json", "--epoch-events", "many"], "Invalid value for '--epoch-events'"),
        (["run", "--log-format", "json", "--parts", "0"], "--model: missing"),
    ],
)
def test_wrong_use_is_an_object_too(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    first = objects(capsys)[0]
    assert (end.value.code, first["level"]) == (2, "error")
    assert first["event"].startswith(told)


def test_an_error_that_nobody_expected_has_its_traceback_in_the_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "parse_duration", lambda text: 1 / 0)
    with pytest.raises(SystemExit) as end:
        cli.main(["compact", "--log-format", "json", "--keep-changes", "1h", str(tmp_path)])
    *_, first, last = objects(capsys)
    assert (end.value.code, last["event"]) == (3, "ZeroDivisionError: division by zero")
    assert "Traceback" in first["traceback"]


def test_the_command_line_says_it_only_where_it_does() -> None:
    assert cli.log_format_in(["run", "--log-format", "json"]) == "json"
    assert cli.log_format_in(["run", "--log-format=json", "--log-format=text"]) == "text"
    assert cli.log_format_in(["run", "--log-format"]) is None
    assert cli.log_format_in(["run", "--log-format", "xml"]) is None
