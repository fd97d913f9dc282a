"""Times of events on their way through the Partitioner's stage."""

import orjson

from freshet.operators.control import EVENT_TS, FLAGS, event_ts_of
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.parser.rejects import Refusals
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features
from tests.support.stages.sealed import Job, events


def test_an_epoch_says_the_largest_time_of_its_accepted_events_and_says_it_again_after_a_restore() -> None:
    def edge(k: int, **more: int | None) -> dict[str, object]:
        return {"op": "add_edge", "src": k, "dst": k, **more}

    log = CutLog()
    job = Job(log, forbid_typed_loops=True)
    job.keep(job.stage.receive(events([edge(1, ts=50), edge(2), edge(3, ts=-9), edge(4, ts=None)]), 0.0))
    job.keep(job.stage.receive(events([edge(5), edge(6), edge(7), {"op": "del_vertex", "id": 6}], 4), 0.0))
    late = [edge(8, ts=7), {"op": "del_vertex", "id": 99, "ts": 20}, edge(1, ts=90, type="b"), edge(9)]
    job.keep(job.stage.receive(events(late, 8), 0.0))
    times = {1: 50, 2: None, 3: 20}  # a second loop is rejected
    assert {epoch: event_ts_of(ctl) for epoch, ctl in job.sent.items()} == times
    assert (int(job.sent[2][EVENT_TS]), int(job.sent[2][FLAGS])) == (0, 0), "as jobs without times have it"
    again = Job(log, job.entries, forbid_typed_loops=True)
    assert {epoch: event_ts_of(ctl) for epoch, ctl in again.sent.items()} == times


def test_every_kind_of_event_with_a_time_too_far_ahead_has_its_letter() -> None:
    rows = [
        ("add_vertex", 1, [0.5]),
        ("del_vertex", 1),
        ("set_features", 2, [1.5]),
        ("add_edge", 1, 2, 3.0, "t"),
        ("del_edge", 1, 2),
        ("add_vertex", 7),
    ]
    far = events_of(rows, ts=[10**12] * 5 + [0])
    core = Partitioner(1, Features(1), PartitionerConfig(ts_jump_ms=1000))
    core.partition(events_of([("add_vertex", 0)] * 20, ts=[0] * 20))
    change = core.partition(events_of([*rows, *[("add_vertex", 7)] * 9], ts=[10**12] * 5 + [0] * 10))
    letters = list(Refusals(["t"], lambda *_: None).letters(far, change.rejected))
    assert [letter.offset for letter in letters] == [0, 1, 2, 3, 4]
    assert [orjson.loads(letter.raw) for letter in letters] == [
        {"op": "add_vertex", "id": 1, "x": [0.5], "ts": 10**12},
        {"op": "del_vertex", "id": 1, "ts": 10**12},
        {"op": "set_features", "id": 2, "x": [1.5], "ts": 10**12},
        {"op": "add_edge", "src": 1, "dst": 2, "weight": 3.0, "type": "t", "ts": 10**12},
        {"op": "del_edge", "src": 1, "dst": 2, "ts": 10**12},
    ]
    assert core.vertices == 2, "nothing of them came into the graph"
