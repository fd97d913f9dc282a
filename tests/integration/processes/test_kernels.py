"""Compiling ahead says when a process fails, and never that all is ready then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from freshet.gnn.model import save_model
from freshet.job.errors import JobFailed
from freshet.job.machine import kernels
from freshet.kernels.compiled import Stamps
from freshet.kernels.kernel_calls import Call
from tests.support.graphs.models import conv, make_model

READY = Call("freshet.gnn.numerics.elementwise", "relu", (numba.types.Array(numba.types.float32, 1, "C"),))
UNKNOWN = Call("freshet.gnn.numerics.elementwise", "no_such_kernel", ())


@pytest.fixture
def stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stamp = tmp_path / "sources.ready"
    monkeypatch.setattr(kernels, "ready_stamps", lambda: Stamps(stamp, [stamp]))
    return stamp


def test_what_was_compiled_is_counted_and_noted(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "rehearsed_calls", lambda jobs: [READY])
    assert not kernels.are_ready()
    seen: list[tuple[int, int]] = []
    done = kernels.compile_ahead(lambda *counts: seen.append(counts))
    assert (done.kernels, done.folder) == (1, stamp.parent) and done.compiled in (0, 1)
    assert (seen[0], seen[-1]) == ((0, 0), (1, 1))
    assert stamp.exists() and kernels.are_ready()
    assert kernels.compile_ahead().compiled == 0


def test_what_is_ready_for_one_model_is_not_ready_for_others(
    stamp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "rehearsed_calls", lambda jobs: [READY])
    for seed, kind in enumerate(("graph_conv", "gcn_conv")):
        save_model(make_model(seed, [conv(kind, 2, 2)]), tmp_path / kind)
    save_model(make_model(7, [conv("graph_conv", 2, 2)]), tmp_path / "other weights")
    one = kernels.Jobs(tmp_path / "graph_conv", several_parts=False)
    kernels.compile_ahead(jobs=one)
    assert kernels.are_ready(one) and kernels.are_ready(one._replace(model=tmp_path / "other weights"))
    assert not kernels.are_ready(one._replace(several_parts=True))
    assert not kernels.are_ready(one._replace(model=tmp_path / "gcn_conv"))
    assert not kernels.are_ready()
    kernels.compile_ahead()
    assert kernels.are_ready(one._replace(model=tmp_path / "gcn_conv")), "all jobs are any job"


def test_what_is_ready_for_both_kinds_of_ids_and_a_topic_is_ready_for_one_and_none(
    stamp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "rehearsed_calls", lambda jobs: [READY])
    save_model(make_model(0, [conv("gcn_conv", 2, 2)]), tmp_path / "model")
    narrow = kernels.Jobs(tmp_path / "model", several_parts=False, id_kind="int", to_topic=False)
    kernels.compile_ahead(jobs=narrow)
    assert kernels.are_ready(narrow)
    for other in ({"id_kind": "string"}, {"id_kind": None}, {"to_topic": True}, {"several_parts": True}):
        assert not kernels.are_ready(narrow._replace(**other)), other
    several = narrow._replace(several_parts=True)
    kernels.compile_ahead(jobs=several)
    assert kernels.are_ready(several) and not kernels.are_ready(several._replace(many_parts=True))
    kernels.compile_ahead(jobs=several._replace(id_kind="string", many_parts=True))
    assert kernels.are_ready(several._replace(id_kind="string")), "many parts are several"
    kernels.compile_ahead(jobs=narrow._replace(id_kind=None, to_topic=True))
    assert kernels.are_ready(narrow._replace(id_kind="string"))


def test_it_is_said_how_many_are_known_while_more_are_looked_for(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_first = threading.Event()

    def slowly(jobs: object) -> Iterator[Call]:
        yield READY
        assert compiled_first.wait(300), "the first is compiled before the second is known"
        yield READY

    def progress(done: int, total: int) -> None:
        if (done, total) == (1, 1):
            compiled_first.set()

    monkeypatch.setattr(kernels, "rehearsed_calls", slowly)
    assert kernels.compile_ahead(progress).kernels == 2


def test_what_is_compiled_where_one_can_not_write_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, own = (tmp_path / name / "sources.ready" for name in ("installed", "own"))
    installed.parent.mkdir()
    monkeypatch.setattr(kernels, "ready_stamps", lambda: Stamps(own, [installed, own]))
    save_model(make_model(0, [conv("gcn_conv", 2, 2)]), tmp_path / "model")
    jobs = kernels.Jobs(tmp_path / "model", several_parts=False)
    assert not kernels.are_ready(jobs)
    jobs.stamp(installed).touch()
    assert kernels.are_ready(jobs) and not kernels.are_ready()
    installed.touch()
    assert kernels.are_ready()


def test_a_process_that_fails_ends_it(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "rehearsed_calls", lambda jobs: [UNKNOWN])
    with pytest.raises(JobFailed, match=r"compiling kernels: 0 of 1 done"):
        kernels.compile_ahead()
    assert not stamp.exists()


def test_so_does_a_rehearsal_that_fails(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PYTHON_FLAGS", ("-c", "raise SystemExit(7)"))
    with pytest.raises(JobFailed, match="exit 7"):
        kernels.compile_ahead()
    assert not stamp.exists()


def test_a_fault_of_another_kind_is_waited_for_by_nobody(stamp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(jobs: object) -> Iterator[Call]:
        yield READY
        raise EOFError("amid a call")

    monkeypatch.setattr(kernels, "rehearsed_calls", cut_off)
    with pytest.raises(EOFError, match="amid a call"):
        kernels.compile_ahead()
    assert not stamp.exists()


def test_the_line_says_how_far_it_is() -> None:
    assert kernels.progress_line(0, 0) == "compiling kernels, once per machine: finding out which"
    assert kernels.progress_line(23, 61) == "compiling kernels, once per machine: 23 of 61"
