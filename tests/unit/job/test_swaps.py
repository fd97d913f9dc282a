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


@pytest.mark.parametrize("name", STEPS)
def test_the_same_line_goes_on_with_the_step_that_was_killed(swap: Swap, name: str) -> None:
    first = Steps(dies_in=name)
    with pytest.raises(Died):
        swap.run(swap.begin(CURRENT, Path("/jobs/O2"), ASKED), first.all())
    again = Steps()
    record = swap.begin(CURRENT.model_copy(update={"job": "/jobs/other"}), Path("/jobs/O2"), ASKED)
    assert record.old == "/jobs/O", "that which served when the swap began"
    done = swap.run(record, again.all())
    assert first.done[:-1] + again.done == list(STEPS)
    assert (set(done.seconds), done.generation) == (set(STEPS), 1)
    assert swap.record() == done
    swap.end(done)
    assert swap.record() is None


def test_it_ends_before_a_promotion_where_that_is_asked(swap: Swap) -> None:
    steps = Steps()
    held = swap.run(swap.begin(CURRENT, Path("/jobs/O2"), ASKED), steps.all(), upto="check")
    assert steps.done == ["export", "embed", "run", "wait", "check"]
    assert held.generation is None
    assert swap.run(held, steps.all()).generation == 1
    assert steps.done == list(STEPS)


@pytest.mark.parametrize("asked", [{**ASKED, "parts": 3}, {"model": "/models/M2"}, {**ASKED, "edge_ttl": "1d"}])
def test_another_line_is_refused(swap: Swap, asked: dict[str, Any]) -> None:
    begun = swap.begin(CURRENT, Path("/jobs/O2"), ASKED)
    with pytest.raises(UsageError, match=r"a swap is under way with --(parts|edge-ttl)"):
        swap.begin(CURRENT, Path("/jobs/O2"), asked)
    assert swap.record() == begun


def test_a_damaged_record_is_named(swap: Swap) -> None:
    swap.begin(CURRENT, Path("/jobs/O2"), ASKED)
    path = swap.service.folder / FILE
    path.write_bytes(path.read_bytes().replace(b"M2", b"M3"))
    with pytest.raises(DamagedFileError, match="begin the swap again"):
        swap.record()
    path.write_text('{"id": "../..", "began_ms": 1, "asked": {}, "old": "", "old_job_id": "", "out": ""}')
    with pytest.raises(DamagedFileError, match="id"):
        swap.record()
