"""Events of several partitions, cut into epochs and cut the same way again."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from freshet.operators.epochs.config import WAITING_BYTES, SealingConfig
from freshet.operators.epochs.cut import FILES, Cut, LostCutError, Share
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.input_positions import position_columns
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.epochs.waiting_events import Lanes
from freshet.operators.outcome import Outcome
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import EventRange, Events
from freshet.schema import Features
from tests.support.simulation.dict_backend import DictBackend
from tests.support.stages.cuts import lines

TOPIC = 1  # the index of the topic among the sources; 0 is a file


def block(vertices: Sequence[int], partition: int, messages: Sequence[int] = (), source: int = TOPIC) -> Events:
    """Vertices added by one partition; `messages`: the offset of each event's message (default: 0, 1, 2, ...)."""
    events = events_of([("add_vertex", vertex) for vertex in vertices])
    offsets = list(messages) or list(range(len(vertices)))
    position = events.position * 0 + [offset + 1 for offset in offsets]
    end = int(position[-1]) if len(position) else 0
    return replace(
        events,
        position=position,
        source=events.source * 0 + source,
        partition=events.partition * 0 + partition,
        end_position=end,
        end_source=source,
        end_partition=partition,
    )


def ids(pieces: Sequence[EventRange]) -> list[int]:
    return [vertex for piece in pieces for vertex in piece.cut.a.to_list()]  # type: ignore[misc]


def filled() -> Lanes:
    lanes = Lanes(frozenset({TOPIC}))
    arrivals = [block([10, 11], 1), block([1, 2, 3], 0, source=0), block([20], 0), block([12], 1, [2])]
    for number, events in enumerate(arrivals):
        lanes.add_block(number, lanes.next_number(lanes.lane_of(events)), events)
    return lanes


def test_files_are_one_lane_and_each_partition_of_a_topic_is_one() -> None:
    lanes = filled()
    assert lanes.waiting_by_lane() == {FILES: 3, (TOPIC, 0): 1, (TOPIC, 1): 3}
    assert (lanes.accepted, lanes.waiting, lanes.sealed) == (7, 7, 0)
    assert lanes.next_number((TOPIC, 7)) == 0


def test_a_count_takes_what_arrived_first() -> None:
    lanes = filled()
    assert lanes.counts_of_oldest(1) == {(TOPIC, 1): 1}
    assert lanes.counts_of_oldest(4) == {(TOPIC, 1): 2, FILES: 2}
    assert lanes.counts_of_oldest(7) == lanes.waiting_by_lane()
    lanes.withdraw(lanes.counts_of_oldest(4))
    assert lanes.counts_of_oldest(2) == {FILES: 1, (TOPIC, 0): 1}


def test_in_an_epoch_the_order_is_source_partition_offset() -> None:
    lanes = filled()
    assert ids(lanes.withdraw(lanes.counts_of_oldest(6))) == [1, 2, 3, 20, 10, 11]
    assert ids(lanes.withdraw(lanes.waiting_by_lane())) == [12]
    assert lanes.waiting == 0


def test_a_cut_waits_for_each_of_its_lanes() -> None:
    lanes = filled()
    cut = Cut(1, 8, False, (Share(0, 0, 3), Share(TOPIC, 0, 3), Share(TOPIC, 1, 2)))
    assert lanes.counts_of(cut) == {FILES: 3, (TOPIC, 0): 3, (TOPIC, 1): 2}
    assert lanes.lacking(lanes.counts_of(cut)) == [(TOPIC, 0)]
    lanes.add_block(9, 1, block([21, 22], 0, [1, 2]))
    assert not lanes.lacking(lanes.counts_of(cut))
    assert ids(lanes.withdraw(lanes.counts_of(cut))) == [1, 2, 3, 20, 21, 22, 10, 11]


def test_events_of_a_partition_far_ahead_wait_in_a_file_and_come_back_as_they_were() -> None:
    """The cut log wants an event of partition 1, and partition 0 comes first."""
    size = 100
    lanes = Lanes(frozenset({TOPIC}), bound=3 * size)
    held, aside = lanes.levels["waiting_bytes"], lanes.levels["waiting_file_bytes"]
    for round_ in range(2):
        for k in range(20):
            lanes.add_block(100 * round_ + k, lanes.next_number((TOPIC, 0)), block([2 * k, 2 * k + 1], 0), size)
        assert (held.now, held.peak) == (3 * size, (3 + round_) * size)
        assert aside.now > 0
        lanes.add_block(100 * round_ + 50, round_, block([1000 + round_], 1), size)
        assert held.now == 4 * size, "what the cut waits for is in memory"
        epochs = [ids(lanes.withdraw({(TOPIC, 1): 1, (TOPIC, 0): 5}))]
        while lanes.waiting:
            epochs.append(ids(lanes.withdraw({(TOPIC, 0): 5})))
            assert held.now <= held.bound
        assert epochs == [[0, 1, 2, 3, 4, 1000 + round_], *([*range(k, k + 5)] for k in range(5, 40, 5))]
        assert (held.now, aside.now) == (0, 0)
    assert held.bound == 5 * size, "a block of each partition beside it"
    lanes.close()


def test_a_journal_with_a_gap_is_noticed() -> None:
    lanes = Lanes(frozenset({TOPIC}))
    lanes.restore({FILES: 0, (TOPIC, 0): 5})
    with pytest.raises(LostCutError, match="the journal begins at event 6, the cut to replay from is at 5"):
        lanes.add_block(0, 6, block([1], 0))
    lanes.add_block(0, 4, block([1, 2], 0))
    lanes.add_block(1, 8, block([3], 0))
    with pytest.raises(LostCutError, match=r"has events 5 to 8, the journal has 1 of them \(source 1, partition 0\)"):
        lanes.withdraw({(TOPIC, 0): 3})


def test_next_offset_is_that_of_the_first_message_not_covered_whole() -> None:
    """Messages 5 (two events), 7 (three events), 8: every cut of the six events."""
    events = block([1, 2, 3, 4, 5, 6], 3, [5, 5, 7, 7, 7, 8])
    found = []
    for end in range(1, 7):
        found.append(int(position_columns([EventRange(events, 0, end)])["pos_next"][0]))
    assert found == [5, 6, 7, 7, 8, 9]
    encoded = Events.decode(events.slice(0, 4).encode())
    assert position_columns([EventRange.whole(encoded)])["pos_next"].tolist() == [7], (
        "a block that was cut within a message says so"
    )


def test_lanes_stand_in_the_cut_log(tmp_path: Path) -> None:
    cuts = [
        Cut(1, 4, False, (Share(0, 0, 4, 4),)),
        Cut(2, 9, True, (Share(0, 0, 2, 6), Share(1, 0, 2, 17), Share(1, 3, 1, 5))),
        Cut(3, 10, False, (Share(1, 3, 1, 7),)),
    ]
    log = CutLog(tmp_path / "cuts")
    for cut in cuts:
        log.append(cut)
    log.close()
    assert lines(tmp_path / "cuts")[:2] == ["[1,4,0,[[0,0,4,4]]]", "[2,9,1,[[0,0,2,6],[1,0,2,17],[1,3,1,5]]]"]
    again = CutLog(tmp_path / "cuts")
    assert list(again.cuts.values()) == cuts


class Job:
    """A PartitionerStage over topics alone, its keyed state, and the vertices and positions of each epoch."""

    def __init__(self, log: CutLog, entries: dict[str, bytes], waiting_bytes: int) -> None:
        config = SealingConfig(4, marker_interval_ms=10**9, marker_epochs_max=3, waiting_bytes=waiting_bytes)
        self.stage = PartitionerStage(Partitioner(1, Features(1)), config, log, streams=[TOPIC])
        self.backend = DictBackend(entries)
        self.entries = self.backend.entries
        self.epochs: dict[int, tuple[list[int], list[tuple[int, int]]]] = {}
        self.stage.restore(self.entries.items())
        for outcome in self.stage.begin():
            self.keep(outcome)

    def keep(self, outcome: Outcome) -> None:
        self.backend.apply(outcome.puts, outcome.deletes)
        for message in outcome.messages:
            columns = message.block.columns
            born = columns["m_key"].tolist() if "m_key" in columns else []
            reached = zip(columns["pos_partition"].tolist(), columns["pos_next"].tolist(), strict=True)
            self.epochs[message.epoch] = born, list(reached)


@pytest.mark.parametrize("seed", range(20))
def test_epochs_come_back_though_partitions_arrive_in_another_order(seed: int) -> None:
    """Random arrivals, ticks and crashes: an epoch that was cut holds the same events whenever it comes again."""
    rng = random.Random(seed)
    input_ = {partition: [100 * partition + k for k in range(30)] for partition in range(3)}
    # messages of one to four events; a partition's messages never differ
    offsets = {p: sorted(rng.choices(range(12), k=30)) for p in input_}
    log, saved = CutLog(), dict[str, bytes]()
    read = at_checkpoint = dict.fromkeys(input_, 0)
    seen: dict[int, object] = {}
    crashes = 0
    waiting_bytes = (0, 1000, WAITING_BYTES)[seed % 3]
    job = Job(log, saved, waiting_bytes)
    while True:
        assert all(seen.setdefault(epoch, found) == found for epoch, found in job.epochs.items())
        left = [p for p in input_ if read[p] < 30]
        if not left and crashes:
            break
        if not left or (crashes < 4 and rng.random() < 0.1):
            crashes += 1
            job, read = Job(log, saved, waiting_bytes), dict(at_checkpoint)
            continue
        if rng.random() < 0.2:
            saved, at_checkpoint = dict(job.entries), dict(read)
        if rng.random() < 0.2:
            job.keep(job.stage.tick(1.0))
            continue
        partition = rng.choice(left)
        begin = read[partition]
        end = begin + 1
        while end < 30 and (rng.random() < 0.7 or offsets[partition][end] == offsets[partition][end - 1]):
            end += 1  # whole messages
        events = block(input_[partition][begin:end], partition, offsets[partition][begin:end])
        read = {**read, partition: end}
        job.keep(job.stage.receive(events.encode(), 0.0))
    job.keep(job.stage.finish())
    assert all(seen.setdefault(epoch, found) == found for epoch, found in job.epochs.items())
    born = [vertex for epoch in sorted(seen) for vertex in seen[epoch][0]]  # type: ignore[index]
    assert sorted(born) == sorted(itertools.chain(*input_.values())), f"seed {seed}"


def test_a_block_of_rejected_records_alone_among_others() -> None:
    lanes = Lanes(frozenset({TOPIC}))
    for number, vertices in enumerate(([1, 2], [], [3])):
        lanes.add_block(number, lanes.next_number((TOPIC, 0)), block(vertices, 0))
    pieces = lanes.withdraw(lanes.waiting_by_lane())
    assert ids(pieces) == [1, 2, 3]
    assert position_columns(pieces)["pos_events"].tolist() == [3]
