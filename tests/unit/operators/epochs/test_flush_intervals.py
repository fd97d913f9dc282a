"""Intervals of the coalesced output: what ends them, and that the cut log brings them back."""

from pathlib import Path

import orjson

from freshet.operators.control import EVENTS_IN_EPOCH, FLAGS, FLUSH, LAST, PUBLISH
from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.flush_intervals import Intervals
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.parser.core import Origin, Parser
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.schema import Features
from freshet.state.codec import Block
from tests.support.simulation.dict_backend import DictBackend

WIDTH = 2


class Job:
    """A PartitionerStage of one part: the flags and the number of events of each epoch that it sent."""

    def __init__(self, log: CutLog, entries: dict[str, bytes] | None = None, **config: int) -> None:
        settings = SealingConfig(**{"epoch_events": 4, "marker_interval_ms": 10_000, **config})
        self.stage = PartitionerStage(
            Partitioner(1, Features(WIDTH), PartitionerConfig()), settings, log, None, None, ("a",)
        )
        self.backend = DictBackend(entries)
        self.entries = self.backend.entries
        self.flags: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.stage.restore(self.entries.items())
        for outcome in self.stage.begin():
            self.keep(outcome)

    def keep(self, outcome) -> None:
        self.backend.apply(outcome.puts, outcome.deletes)
        for message in outcome.messages:
            assert isinstance(message.block, Block)
            ctl = message.block.columns["ctl"]
            self.flags[message.epoch] = int(ctl[FLAGS])
            self.counts[message.epoch] = int(ctl[EVENTS_IN_EPOCH])

    def receive(self, count: int, now_ms: float) -> None:
        lines = b"\n".join(orjson.dumps({"op": "add_edge", "src": k, "dst": k + 1}) for k in range(count))
        events, _ = Parser(Features(WIDTH), None, None).parse_jsonl(lines, Origin(), self.stage.accepted)
        self.keep(self.stage.receive(events.encode(), now_ms))

    def tick(self, now_ms: float) -> None:
        self.keep(self.stage.tick(now_ms))

    @property
    def flushed(self) -> list[int]:
        return [epoch for epoch, flags in self.flags.items() if flags & FLUSH]


def test_an_interval_ends_after_so_many_epochs() -> None:
    job = Job(CutLog(), flush_epochs=3)
    job.receive(40, 1.0)
    assert job.flushed == [3, 6, 9]


def test_nobody_wants_intervals() -> None:
    job = Job(CutLog(), flush_ms=1)
    job.receive(40, 1.0)
    job.tick(1e6)
    job.keep(job.stage.finish())
    assert job.flushed == []
    assert list(job.flags) == list(range(1, 11))


def test_an_interval_ends_with_time_and_what_comes_after_a_pause_is_not_held_back() -> None:
    job = Job(CutLog(), flush_epochs=1000, flush_ms=500)
    for now_ms in (10_000, 10_100, 10_400, 10_500, 10_600, 12_000):
        job.receive(4, now_ms)
    assert job.flushed == [1, 4, 6]


def test_a_pause_ends_an_open_interval_with_an_empty_epoch() -> None:
    log = CutLog()
    job = Job(log, flush_epochs=1000, flush_ms=500)
    job.receive(4, 10_000)
    assert job.flushed == [1]
    assert not job.stage.waiting, "nothing to wake up for"
    job.receive(4, 10_100)
    assert job.stage.waiting
    for now_ms in (10_120, 10_499, 10_500, 10_520, 20_000):
        job.tick(now_ms)
    assert job.flushed == [1, 3]
    assert job.counts == {1: 4, 2: 4, 3: 0}
    assert not job.stage.waiting
    assert [cut.end for cut in log.cuts.values()] == [4, 8, 8]


def test_a_marker_ends_an_interval() -> None:
    job = Job(CutLog(), flush_epochs=1000, marker_interval_ms=100)
    for now_ms in (10, 20, 150, 160, 300):
        job.receive(4, now_ms)
    assert job.flushed == [3, 5]


def test_the_end_of_the_input_ends_the_last_interval() -> None:
    job = Job(CutLog(), flush_epochs=3)
    job.receive(18, 1.0)
    job.keep(job.stage.finish())
    assert job.flags[5] == FLUSH | LAST | PUBLISH
    again = Job(CutLog(), flush_epochs=3)
    again.receive(16, 1.0)
    again.keep(again.stage.finish())
    assert again.flags[5] == FLUSH | LAST | PUBLISH, (
        "an empty epoch, where the last one was sealed before the end was known"
    )
    assert again.counts[5] == 0


def test_the_cut_log_brings_the_intervals_back(tmp_path: Path) -> None:
    log = CutLog(tmp_path / "cuts")
    config = {"flush_epochs": 1000, "flush_ms": 500, "marker_interval_ms": 10_000}
    job = Job(log, **config)
    job.receive(6, 10_000)
    saved = dict(job.entries)
    job.tick(10_100)
    job.tick(10_600)
    job.receive(4, 10_700)
    job.tick(11_100)
    before = job.flags
    assert job.flushed == [1, 3, 5]
    cuts = log.cuts
    log.close()
    again = CutLog(tmp_path / "cuts")
    assert again.cuts == cuts
    restored = Job(again, saved, **config)
    restored.receive(4, 50_000)
    assert {epoch: flags & FLUSH for epoch, flags in restored.flags.items()} == {
        e: f & FLUSH for e, f in before.items()
    }
    restored.receive(4, 50_600)
    assert restored.flushed == [1, 3, 5, 6], "and goes on by the clock"


def test_intervals_without_a_clock() -> None:
    intervals = Intervals(2)
    assert not intervals.is_overdue(1, 1e9)
    assert not intervals.ends_with(1, 1e9, False)
    assert intervals.ends_with(2, 0.0, False)
