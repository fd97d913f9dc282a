"""What operators count about themselves, and how it is put together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.level import Level, together
from freshet.operators.telemetry.load import read_loads
from freshet.operators.telemetry.profile import Profile, forget_profiles, input_ended, read_figures, read_profiles
from freshet.operators.telemetry.status_file import await_last
from freshet.operators.telemetry.sum_report import all_sums


def test_a_level_knows_its_peak() -> None:
    level = Level(bound=10)
    for amount in (3, 4):
        level.add(amount)
    level.take(5)
    level.add(1)
    assert level.as_dict() == {"now": 3, "peak": 7, "bound": 10}
    level.set(9)
    level.set(0)
    assert level.as_dict() == {"now": 0, "peak": 9, "bound": 10}
    level.add(2)
    assert level.now == 2


@pytest.mark.parametrize(("bounds", "bound"), [((5, 6), 11), ((5, None), None), ((0, 0), 0)])
def test_levels_together(bounds: tuple[int | None, int | None], bound: int | None) -> None:
    levels = [Level(bound=one, peak=4) for one in bounds]
    levels[0].add(3)
    assert together(level.as_dict() for level in levels) == {"now": 3, "peak": 8, "bound": bound}


def stage(memory: int, **levels: int) -> SimpleNamespace:
    found = {name: Level() for name in levels}
    for name, now in levels.items():
        found[name].add(now)
    return SimpleNamespace(memory_bytes=memory, levels=found, figures=Figures({"redone_rows": memory}))


def test_subtasks_and_parts_are_put_together(tmp_path: Path) -> None:
    for subtask, parts in ((0, (0, 2)), (1, (1,))):
        profile = Profile(tmp_path, "storage1", subtask)
        profile.stages |= {part: stage(100 + part, inbox_bytes=part) for part in parts}
        profile.levels["outbox_bytes"] = Level(bound=7)
        profile.bytes_in, profile.bytes_out, profile.bytes_away, profile.stage = 10, 20, 5, 0.5
        profile.write()
    found = read_profiles(tmp_path)["storage1"]
    assert (found["subtasks"], found["bytes_in"], found["bytes_out"], found["bytes_away"]) == (2, 20, 40, 10)
    assert found["stage"] == 1.0
    assert found["memory_bytes"] == {"0": 100, "1": 101, "2": 102}
    assert read_figures(tmp_path) == Figures({"redone_rows": 303})
    assert found["levels"]["inbox_bytes"] == {"now": 3, "peak": 3, "bound": None}
    assert found["levels"]["outbox_bytes"] == {"now": 0, "peak": 0, "bound": 14}
    assert not input_ended(tmp_path, bounded=True)
    forget_profiles(tmp_path)
    assert read_profiles(tmp_path) == {}


@pytest.mark.parametrize(
    ("acts", "seen", "bounded", "ended"),
    [(5, True, True, True), (5, False, True, False), (0, False, True, True), (0, False, False, False)],
)
def test_input_has_ended_where_its_end_was_seen_or_is_behind_the_state(
    tmp_path: Path, acts: int, seen: bool, bounded: bool, ended: bool
) -> None:
    """A Partitioner that is restored from a state past the end of its input has nothing to begin with."""
    Profile(tmp_path, "sink", 0).write()
    profile = Profile(tmp_path, "partitioner", 0)
    profile.acts, profile.input_ended = acts, seen
    profile.write()
    assert input_ended(tmp_path, bounded=bounded) == ended


def test_an_idle_thread_writes_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile(tmp_path, "sink", 0)
    profile.write()
    written = [read_profiles(tmp_path)["sink"]["acts"]]
    monkeypatch.setattr(profile, "is_due", lambda: True)
    puts: list[int] = []
    put = profile._put
    monkeypatch.setattr(profile, "_put", lambda fields: (puts.append(1), put(fields)))
    profile.write_if_changed()
    assert not puts
    profile.acts = 3
    profile.write_if_changed()
    profile.write_if_changed()
    assert len(puts) == 1
    assert [*written, read_profiles(tmp_path)["sink"]["acts"]] == [0, 3]


def test_what_sums_have_shown_is_put_together(tmp_path: Path) -> None:
    for subtask, differed in ((0, 0), (1, 2)):
        profile = Profile(tmp_path, "storage1", subtask)
        sums = {"recomputed": 1, "scrubbed": 16, "differed": differed, "largest_difference": differed * 1e-9}
        profile.sums = partial(all_sums, [sums, None, sums])
        profile.write()
    found = read_profiles(tmp_path)["storage1"]["sums"]
    assert found == {"recomputed": 4, "scrubbed": 64, "differed": 4, "largest_difference": 2e-9}


def test_the_last_file_of_an_attempt_is_waited_for(tmp_path: Path) -> None:
    """A short job ends before its Parser has said what it read: the client reads that after the last file only."""
    profile = Profile(tmp_path, "parser-0", 0)
    profile.loads.places["source-0"] = lambda: {"busy_s": 1.0, "messages": 6_000.0}
    profile.write()
    assert not await_last(tmp_path, 0.0, 0.0)
    profile.end()
    assert await_last(tmp_path, 0.0, 0.0)
    assert read_loads(tmp_path, running=False)["source-0"]["messages"] == 6_000


def test_an_attempt_that_was_never_closed_does_not_write_over_its_successor(tmp_path: Path) -> None:
    former = Profile(tmp_path, "partitioner", 0)
    former.write()
    present = Profile(tmp_path, "partitioner", 0)
    present.input_ended = True
    present.write()
    former.acts = 5
    former.write()
    assert input_ended(tmp_path, bounded=False)
