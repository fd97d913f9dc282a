"""Compiling ahead says when a process fails, and never that all is ready then."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from gnn.kernel_calls import Call
from job.errors import JobFailed
from job.machine import kernels

READY = Call("gnn.elementwise", "relu", (numba.types.Array(numba.types.float32, 1, "C"),))
UNKNOWN = Call("gnn.elementwise", "no_such_kernel", ())


@pytest.fixture
def stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kernels, "ready_stamp", lambda: tmp_path / "sources.ready")
    return tmp_path / "sources.ready"


def test_what_was_compiled_is_counted_and_noted(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_rehearsed", lambda: [READY])
    assert not kernels.are_ready()
    seen: list[tuple[int, int]] = []
    done = kernels.compile_ahead(lambda *counts: seen.append(counts))
    assert (done.kernels, done.folder) == (1, stamp.parent) and done.compiled in (0, 1)
    assert (seen[0], seen[-1]) == ((0, 0), (1, 1))
    assert stamp.exists() and kernels.are_ready()
    assert kernels.compile_ahead().compiled == 0


def test_a_process_that_fails_ends_it(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_rehearsed", lambda: [UNKNOWN])
    with pytest.raises(JobFailed, match=r"compiling kernels: 0 of 1 done"):
        kernels.compile_ahead()
    assert not stamp.exists()


def test_so_does_a_rehearsal_that_fails(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_FLAGS", ("-c", "raise SystemExit(7)"))
    with pytest.raises(JobFailed, match="ended with 7"):
        kernels.compile_ahead()
    assert not stamp.exists()


def test_the_line_says_how_far_it_is() -> None:
    assert kernels.progress_line(0, 0) == "compiling kernels, once per machine: finding out which"
    assert kernels.progress_line(23, 61) == "compiling kernels, once per machine: 23 of 61"
