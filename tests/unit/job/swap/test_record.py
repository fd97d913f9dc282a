"""A swap of a service's model goes on where it was killed, and refuses another line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import DamagedFileError
from freshet.job.errors import UsageError
from freshet.job.service.generations import Generation, Service
from freshet.job.swap.record import FILE, STEPS, Swap, SwapRecord, SwapStep

CURRENT = Generation(generation=0, job="/jobs/O", job_id="a", model="", since_ms=1, why="promote")
ASKED = {"model": "/models/M2", "parts": 2}


class Died(Exception):
    """The process was killed."""


class Steps:
    """Steps that note themselves; one may die, before or after it has done its work."""

    def __init__(self, dies_in: str | None = None) -> None:
        self.done, self._dies_in = list[str](), dies_in

    def all(self) -> list[SwapStep]:
        return [SwapStep(name, self._act(name)) for name in STEPS]

    def _act(self, name: str) -> Any:
        def act(_record: SwapRecord) -> Mapping[str, Any]:
            self.done.append(name)
            if name == self._dies_in:
                raise Died
            return {"generation": 1} if name == "promote" else {}

        return act


@pytest.fixture
def swap(tmp_path: Path) -> Swap:
    return Swap(Service(tmp_path / "V"))


def begun(swap: Swap, **asked: Any) -> SwapRecord:
    return swap.begin(CURRENT, {**ASKED, **asked}, {"parts": 2}, out="/jobs/O2", events=["kafka://b:9092/e"])


@pytest.mark.parametrize("name", STEPS)
def test_the_same_line_goes_on_with_the_step_that_was_killed(swap: Swap, name: str) -> None:
    first = Steps(dies_in=name)
    with pytest.raises(Died):
        swap.run(begun(swap), first.all())
    again = Steps()
    found = swap.record()
    assert found is not None
    record = swap.same(found, ASKED)
    done = swap.run(record, again.all())
    assert first.done[:-1] + again.done == list(STEPS)
    assert (set(done.seconds), done.generation) == (set(STEPS), 1)
    assert swap.record() == done
    swap.end(done)
    assert swap.record() is None


def test_it_ends_before_a_promotion_where_that_is_asked(swap: Swap) -> None:
    steps = Steps()
    held = swap.run(begun(swap), steps.all(), upto="check")
    assert steps.done == ["export", "embed", "run", "wait", "check"]
    assert held.generation is None
    assert swap.run(held, steps.all()).generation == 1
    assert steps.done == list(STEPS)


@pytest.mark.parametrize("asked", [{**ASKED, "parts": 3}, {"model": "/models/M2"}, {**ASKED, "edge_ttl": "1d"}])
def test_another_line_is_refused(swap: Swap, asked: dict[str, Any]) -> None:
    record = begun(swap)
    with pytest.raises(UsageError, match=r"a swap is under way with --(parts|edge-ttl)"):
        swap.same(record, asked)
    assert swap.record() == record


def test_one_command_swaps_at_a_time(swap: Swap) -> None:
    begun(swap)
    with swap.alone(), pytest.raises(UsageError, match="freshet swap"), swap.alone():
        pass
    with swap.alone():
        pass


def test_options_of_the_new_job_are_there_before_the_record(swap: Swap) -> None:
    record = begun(swap)
    assert swap.config(record).read_text() == "parts: 2\n"
    assert swap.config(record).stat().st_mode & 0o077 == 0


def test_a_damaged_record_is_named(swap: Swap) -> None:
    begun(swap)
    path = swap.service.folder / FILE
    path.write_bytes(path.read_bytes().replace(b"M2", b"M3"))
    with pytest.raises(DamagedFileError, match="begin the swap again"):
        swap.record()
    path.write_text('{"id": "../..", "began_ms": 1, "asked": {}, "old": "", "old_job_id": "", "out": ""}')
    with pytest.raises(DamagedFileError, match="id"):
        swap.record()
