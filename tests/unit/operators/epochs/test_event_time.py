"""Epochs that end by the `ts` of events, against a slow rule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import FILES, Lane
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.event_time import NO_END, EventTime, IntervalRule
from freshet.operators.epochs.journal import MARKERS_KEY
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.outcome import Outcome
from freshet.operators.telemetry.figures import HAS_TS
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.schema import Features
from tests.support.simulation.dict_backend import DictBackend
from tests.support.stages.cuts import ends_by_epoch

DAY = 100  # the length of an interval in these tests
TOPIC = 1
ENDLESS = (TOPIC, NO_END)
Times = Sequence[int | None]


def block(ts: Times, lane: Lane, first: int) -> Events:
    """Events of a lane from position `first` on, with these times."""
    source, partition = (0, 0) if lane == FILES else lane
    events = events_of([("add_vertex", k) for k in range(first, first + len(ts))], first=first, ts=ts)
    return replace(
        events,
        source=events.source * 0 + source,
        partition=events.partition * 0 + partition,
        end_source=source,
        end_partition=partition,
        end_position=first + len(ts),
    )


class Job:
    """A PartitionerStage of which event time ends epochs, with its keyed state."""

    def __init__(
        self,
        log: CutLog,
        entries: dict[str, bytes] | None = None,
        ends: dict[Lane, tuple[int, int]] | None = None,
        *,
        jump_ms: int = 0,
        idle_ms: int = 30_000,
        length_ms: int = DAY,
        **config: float,
    ) -> None:
        sealing = SealingConfig(**{"epoch_events": 1000, "epoch_ms": 0, "marker_interval_ms": 10**9, **config})
        time = EventTime(IntervalRule(length_ms, jump_ms), idle_ms, ends)
        core = Partitioner(1, Features(1))
        self.log, self.backend = log, DictBackend(entries)
        self.stage = PartitionerStage(core, sealing, log, streams=[TOPIC], time=time)
        self.stage.restore(self.backend.entries.items())
        for outcome in self.stage.begin():
            self.keep(outcome)

    def keep(self, outcome: Outcome) -> None:
        self.backend.apply(outcome.puts, outcome.deletes)

    def receive(self, ts: Times, lane: Lane = FILES, now_ms: float = 0.0) -> Job:
        first = self.stage.lanes.next_number(lane)
        self.keep(self.stage.receive(block(ts, lane, first).encode(), now_ms))
        return self

    def tick(self, now_ms: float) -> None:
        if self.stage.is_due(now_ms):
            self.keep(self.stage.tick(now_ms))

    def finish(self) -> Job:
        self.keep(self.stage.finish())
        return self

    @property
    def sizes(self) -> list[int]:
        ends = [0, *(cut.end for cut in self.log.cuts.values())]
        return [end - begin for begin, end in itertools.pairwise(ends)]


def intervals_of(ts: Times) -> list[int | None]:
    """The interval of each event of a lane, one by one; None before the first time."""
    found, largest = list[int | None](), None
    for one in ts:
        if one is not None and (largest is None or one > largest):
            largest = one
        found.append(None if largest is None else largest // DAY)
    return found


def expected_sizes(ts: Times, most: int) -> list[int]:
    """Sizes of the epochs of one lane, by event time and by a number of events."""
    sizes, count, before = list[int](), 0, None
    for interval in intervals_of(ts):
        if count and before is not None and interval != before:
            sizes.append(count)
            count = 0
        count, before = count + 1, interval
        if count == most:
            sizes.append(count)
            count = 0
    return [*sizes, count] if count else sizes


def drawn(rng: random.Random, n: int, begin: int = -3 * DAY) -> list[int | None]:
    """Times that rise unevenly, with late events, jumps over intervals, and events without."""
    now, found = begin, list[int | None]()
    for _ in range(n):
        now += rng.choice([0, 0, 1, 5, 30, 30, rng.randrange(4 * DAY) if rng.random() < 0.1 else 2])
        found.append(rng.choice([now, now, now, None, now - rng.randrange(3 * DAY)]))
    return found


def pieces(rng: random.Random, n: int) -> list[tuple[int, int]]:
    """Random blocks of n events."""
    bounds = sorted({0, n, *(rng.randrange(n + 1) for _ in range(rng.randrange(12)))})
    return list(itertools.pairwise(bounds))


@pytest.mark.parametrize("seed", range(40))
def test_cuts_of_one_lane_are_those_of_the_slow_rule_whatever_its_blocks_and_crashes_are(seed: int) -> None:
    rng = random.Random(seed)
    ts, most = drawn(rng, 150), rng.choice([7, 20, 1000])
    log, config = CutLog(), {"epoch_events": most, "marker_epochs_max": rng.choice([1, 3, 10**6])}
    job, saved, crashes = Job(log, **config), dict[str, bytes](), 0
    for begin, end in pieces(rng, len(ts)):
        if rng.random() < 0.4:
            saved = dict(job.backend.entries)
        job.receive(ts[begin:end])
        if rng.random() < 0.4:
            crashes += 1
            job = Job(log, saved, **config)
            job.receive(ts[job.stage.lanes.next_number(FILES) : end])
    assert job.finish().sizes == expected_sizes(ts, most), f"seed {seed}, {crashes} crashes"


@pytest.mark.parametrize("seed", range(40))
def test_ends_of_intervals_of_several_lanes_do_not_depend_on_arrival(seed: int) -> None:
    """Readers of any number, at any pace: after an interval each lane has its events up to there, and no more."""
    rng = random.Random(seed)
    lanes: list[Lane] = [FILES, (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)][rng.randrange(2) :]
    ts = {lane: drawn(rng, 60 if lane == (TOPIC, 0) else rng.choice([3, 60])) for lane in lanes}
    for times in ts.values():
        times[0] = times[0] or -3 * DAY  # a lane without a time yet would end no interval
    ends = {lane: (max(lane[0], 0), len(ts[lane])) for lane in lanes}
    log, saved = CutLog(), dict[str, bytes]()
    config = {"epoch_events": rng.choice([7, 1000]), "marker_epochs_max": rng.choice([1, 3]), "waiting_bytes": 2000}
    job = Job(log, None, ends, **config)
    while left := [lane for lane in lanes if job.stage.lanes.next_number(lane) < len(ts[lane])]:
        if rng.random() < 0.2:
            saved = dict(job.backend.entries)
        if rng.random() < 0.1:
            job = Job(log, saved, ends, **config)
            continue
        lane = rng.choice(left[: rng.choice([1, 4])])
        begin = job.stage.lanes.next_number(lane)
        job.receive(ts[lane][begin : begin + rng.randrange(1, 30)], lane)
    job.finish()
    cuts = [tuple(of.get(lane, 0) for lane in lanes) for of in ends_by_epoch(log, [TOPIC]).values()]
    found = {lane: intervals_of(ts[lane]) for lane in lanes}
    every = sorted({interval for of in found.values() for interval in of if interval is not None})
    wanted = [tuple(sum(one is None or one <= end for one in found[lane]) for lane in lanes) for end in every]
    assert len(every) > 3
    assert set(wanted) <= set(cuts), f"seed {seed}"
    for cut in cuts:  # none lies across the end of an interval
        assert any(
            all(a <= c <= b for a, c, b in zip(low, cut, high, strict=True))
            for low, high in zip([(0,) * len(lanes), *wanted], wanted, strict=False)
        ), f"seed {seed}"


def test_an_event_without_a_time_ends_no_epoch_and_a_late_one_belongs_to_the_open_one() -> None:
    job = Job(CutLog()).receive([None, None, 150, None, 20, 199, 200, None, 10, 450])
    assert job.sizes == [6, 3]
    assert job.finish().sizes == [6, 3, 1]
    assert Job(CutLog()).receive([None] * 5).finish().sizes == [5]


def test_times_before_1970_have_intervals_of_the_same_length() -> None:
    assert Job(CutLog()).receive([-101, -100, -1, 0, 99]).finish().sizes == [1, 2, 2]


def test_a_lane_waits_for_the_others_until_they_are_idle_or_at_their_end() -> None:
    one, two = (TOPIC, 0), (TOPIC, 1)
    job = Job(CutLog(), None, {one: ENDLESS, two: ENDLESS}, idle_ms=5000)
    job.receive([10, 20, 110, 120, 350], one)
    for now_ms in range(0, 4900, 700):
        job.tick(now_ms)
    assert job.sizes == [], "nothing of the other one has come yet"
    job.tick(5600.0)
    assert job.sizes == [2, 2], "now it is passed over"
    job.receive([130, None], two, 5700.0)
    assert job.stage.lanes.open == 3, "late events belong to the open interval, the fourth"
    job.receive([360, 400], two, 5800.0).receive([410], one, 5900.0)
    assert job.sizes == [2, 2, 4]
    job = Job(CutLog(), None, {one: ENDLESS, two: (TOPIC, 2)}, idle_ms=0)
    job.receive([10, 110], one).receive([5], two)
    job.tick(1e9)
    assert job.sizes == []
    assert job.receive([6], two).sizes == [3], "its end"


def test_a_process_that_stands_still_makes_no_lane_idle() -> None:
    job = Job(CutLog(), None, {(TOPIC, 0): ENDLESS, (TOPIC, 1): ENDLESS}, idle_ms=5000)
    job.receive([10, 110], (TOPIC, 0))
    job.tick(60_000.0)
    assert job.sizes == []
    job.tick(62_000.0)
    job.tick(64_000.0)
    assert job.sizes == [1]


@pytest.mark.parametrize("adapts", [False, True])
def test_events_of_a_later_interval_wait_at_a_tick_too(adapts: bool) -> None:
    job = Job(CutLog(), None, {(TOPIC, 0): ENDLESS, (TOPIC, 1): ENDLESS}, epoch_ms=20, latency_target_ms=50.0 * adapts)
    job.receive([10, 20, 110], (TOPIC, 0)).receive([30], (TOPIC, 1))
    job.tick(100.0)
    job.tick(200.0)
    assert job.sizes == [3]
    job.tick(300.0)
    assert (job.sizes, job.stage.lanes.waiting, job.stage.holds_back) == ([3], 1, False)


def test_a_time_far_ahead_ends_an_epoch_only_if_the_next_one_is_far_ahead_too() -> None:
    wrong, gap = [10, 20, 10**6, None, 30, 110], [10, 20, 10**6, None, 10**6 + 1, 10**6 + DAY]
    assert Job(CutLog(), jump_ms=DAY).receive(wrong).finish().sizes == [5, 1]
    assert Job(CutLog(), jump_ms=DAY).receive(gap).finish().sizes == [2, 3, 1]
    assert Job(CutLog(), jump_ms=DAY).receive([10, 299, 300]).finish().sizes == [1, 1, 1], "one interval more is none"
    assert Job(CutLog()).receive(wrong).finish().sizes == [2, 4], "without --ts-jump every time counts"
    last = Job(CutLog(), jump_ms=DAY, idle_ms=1000, epoch_ms=20).receive([10, 20, 10**6])
    last.tick(10.0)
    assert last.sizes == [2], "the next time is to decide"
    last.tick(1500.0)
    assert last.sizes == [2, 1], "none has come"


@pytest.mark.parametrize("seed", range(20))
def test_blocks_and_crashes_do_not_matter_to_times_far_ahead(seed: int) -> None:
    rng = random.Random(seed)
    ts = [rng.choice([10**6, 10**7]) if one is not None and rng.random() < 0.05 else one for one in drawn(rng, 100)]
    whole = Job(CutLog(), jump_ms=DAY).receive(ts).finish().sizes
    log, saved = CutLog(), dict[str, bytes]()
    job = Job(log, jump_ms=DAY, marker_epochs_max=1)
    for begin, end in pieces(rng, len(ts)):
        job.receive(ts[begin:end])
        if rng.random() < 0.3:
            saved = dict(job.backend.entries)
        if rng.random() < 0.3:
            job = Job(log, saved, jump_ms=DAY, marker_epochs_max=1)
            job.receive(ts[job.stage.lanes.next_number(FILES) : end])
    assert job.finish().sizes == whole
    assert len(whole) > 1


def test_late_events_alone_since_the_restored_marker_do_not_turn_time_back() -> None:
    config = {"epoch_events": 2, "marker_epochs_max": 1}
    job = Job(log := CutLog(), **config).receive([900, 901, 10, 11, 12, 13, 20])
    assert job.sizes == [2, 2, 2]
    again = Job(log, dict(job.backend.entries), **config)
    assert again.receive([902, 15, 1000]).finish().sizes == [2, 2, 2, 2, 1, 1], "20 and 902 are of one interval"


def test_a_state_of_a_job_without_event_time_is_taken_up_and_keeps_its_form() -> None:
    log = CutLog()
    config = SealingConfig(2, 0, marker_interval_ms=10**9, marker_epochs_max=1)
    plain, backend = PartitionerStage(Partitioner(1, Features(1)), config, log), DictBackend()
    plain.restore(())
    for outcome in [*plain.begin(), plain.receive(block([10, 20, 310, 320, 40], FILES, 0).encode(), 0.0)]:
        backend.apply(outcome.puts, outcome.deletes)
    assert orjson.loads(backend.entries[MARKERS_KEY]) == [[1, [[-1, 0, 2]]], [2, [[-1, 0, 4]]]]
    job = Job(log, backend.entries, marker_epochs_max=1)
    assert job.receive([330, 410, 420]).finish().sizes == [2, 2, 2, 2]
    assert orjson.loads(job.backend.entries[MARKERS_KEY])[-1] == [4, [[-1, 0, 8, 4 * DAY, 0, 8]]]


@pytest.mark.parametrize(("length_ms", "sizes"), [(10, [1, 1]), (DAY, [2]), (10 * DAY, [2])])
def test_a_resumed_job_may_have_intervals_of_another_length(length_ms: int, sizes: list[int]) -> None:
    config = {"epoch_events": 2, "marker_epochs_max": 1}
    job = Job(log := CutLog(), **config).receive([900, 901, 10, 11, 12, 13])
    again = Job(log, dict(job.backend.entries), length_ms=length_ms, **config)
    assert again.receive([908, 911]).finish().sizes == [2, 2, 2, *sizes]
    lowest, none = IntervalRule(DAY), -(2**63)
    for ts in (none + 1, -1, 0, 2**63 - 1):
        interval = lowest.interval_of(ts)
        assert none < lowest.begin_ms(interval) < 2**63
        assert lowest.interval_of(lowest.begin_ms(interval)) == interval
    assert lowest.interval_of(none) == lowest.begin_ms(none) == none


def test_it_is_known_whether_any_event_had_a_time() -> None:
    job = Job(CutLog()).receive([None, None])
    assert job.stage.figures.gauges[HAS_TS] == 0
    assert job.receive([None, 7]).stage.figures.gauges[HAS_TS] == 1
