"""What a server believes: of a table that was left, of positions ahead of their epoch, of records from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.job.serving.feeds.peer_tails import _checked
from freshet.job.serving.protocol.wanted import Wanted
from freshet.job.serving.tables import place
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import RECORD_WORDS, boot_word
from freshet.operators.sink.tail.reader import NotATailError
from tests.support.serving.hand_job import JOB_ID, HandJob
from tests.support.serving.machines import Machines, begin
from tests.unit.job.serving.test_following import catch_up, follower_of, seen
from tests.unit.job.serving.test_merging_faults import job_of, record_of_part


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandJob]:
    made = HandJob(tmp_path / "O")
    made.apply(1, ({2: 1.0}, []), ({4: 1.0}, []), marker=1)
    made.settle()
    yield made
    made.close()
    for path in place.SHM.glob(f"freshet-{JOB_ID}-*"):
        path.unlink()


def test_a_table_of_another_start_of_the_machine_is_not_gone_on_with(
    hand: HandJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk, where pages of it may be older than others."""
    tables, job = hand.out / "tables", ServedJob.read(hand.out)
    assert job is not None
    first = follower_of(hand)
    catch_up(first, 1)
    left = first.table.path
    first.close(forget=False)  # as a kill leaves it
    assert place.left_behind(job, tables) is not None
    assert place.shown_epoch(job, tables) == 1
    monkeypatch.setattr(place, "boot_word", lambda: boot_word() ^ 1)
    assert place.left_behind(job, tables) is None
    assert place.take_over(job, tables) is None
    assert place.shown_epoch(job, tables) == -1
    second = follower_of(hand)
    catch_up(second, 1)
    assert second.table.path != left
    assert not left.exists(), "nobody goes on with it"
    assert seen(hand) == (1, {2: (1, 1.0), 4: (1, 1.0)})
    second.close(forget=True)


def test_a_position_counts_when_its_epoch_can_be_read(hand: HandJob) -> None:
    """The table has positions up to the epoch that is being applied: its rows are not shown yet."""
    follower = follower_of(hand)
    catch_up(follower, 1)
    lookup = Lookup(CurrentTable(hand.out / "tables", JobHere(("events.jsonl",))))
    wanted = Wanted(min_position={"0": 15}, timeout_s=0.0)
    follower.table.set_positions(np.array([[0, 0, 20, 2]]))
    reason = lookup.lacks(wanted)
    assert reason is not None
    assert "expected offset 15 of partition 0 to be covered" in reason
    assert lookup.lacks(Wanted(min_position={"0": 20})) is not None, "20 is the offset that comes next"
    follower.table.publish(2)
    assert lookup.lacks(wanted) is None
    assert lookup.lacks(Wanted(min_position={"0": 20})) is not None
    follower.close(forget=True)


@pytest.fixture
def strings(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path, "string")
    begin(made.hand)
    yield made
    made.close()


FIRST_ID = RECORD_WORDS  # the word of the first offset; epoch 1 of the part has the ids v2 and v3


def words(*values: tuple[int, int]) -> Callable[[np.ndarray], None]:
    def damage(raw: np.ndarray) -> None:
        for at, value in values:
            raw.view(np.int64)[at] = value

    return damage


def text(*values: tuple[int, int]) -> Callable[[np.ndarray], None]:
    def damage(raw: np.ndarray) -> None:
        for at, value in values:
            raw[8 * (RECORD_WORDS + 3) + at] = value

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        words((FIRST_ID, -1)),
        words((FIRST_ID, 1)),
        words((FIRST_ID + 1, 3), (FIRST_ID + 2, 2)),
        words((FIRST_ID + 1, 99)),
        words((FIRST_ID + 1, -99)),
        words((FIRST_ID + 2, 1 << 40)),
        words((FIRST_ID + 2, 3)),
        text((1, 0xFF)),
        text((1, 0xC3), (2, 0xA9)),  # a character of two bytes, half of it in either id
    ],
)
def test_a_record_whose_ids_do_not_lie_in_it(strings: Machines, damage: Callable[[np.ndarray], None]) -> None:
    raw, job = record_of_part(strings), job_of(strings)
    found: Any = _checked(raw.copy(), job)
    assert found.ids.tolist() == [0, 2, 4]
    assert found.text.tobytes() == b"v2v3"
    damage(raw)
    with pytest.raises(NotATailError, match="ids are of another kind, or lie outside it"):
        _checked(raw, job)
