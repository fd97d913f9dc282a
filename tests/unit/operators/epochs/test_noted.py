"""Counts of what became of accepted events: they are part of the state, and so each event counts once."""

from dataclasses import replace
from pathlib import Path

import orjson

from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import Progress
from freshet.operators.parser.letter_box import NOTED_LATE, LetterBox, LetterQueue, read_noted
from freshet.partitioner.events import Events
from tests.support.stages.sealed import Job, events


def test_what_became_of_events_is_counted_once_whatever_was_killed(tmp_path: Path) -> None:
    log, twice = CutLog(), [{"op": "add_edge", "src": 1, "dst": 2, "weight": w} for w in (1, 1, 2)]
    gone = [{"op": "del_edge", "src": 1, "dst": 2}] * 2 + [{"op": "del_vertex", "id": 9}, {"op": "add_vertex", "id": 1}]
    blocks = [events(twice), events([*gone, *twice], 3), events(twice * 2, 10), events([], 16)]
    blocks[3] = replace(Events.decode(blocks[3]), tombstones=5).encode()

    def box() -> LetterBox:
        return LetterBox(LetterQueue(), tmp_path, "partitioner")

    job = Job(log, letters=box())
    job.keep(job.stage.receive(blocks[0], 0.0))
    assert read_noted(tmp_path)["replaced"] == 0, "of no epoch yet"
    kept = dict(job.entries)
    for block in blocks[1:]:  # of an attempt that is killed, and leaves its word
        job.stage.receive(block, 0.0)
    job.stage.close()
    assert read_noted(tmp_path)["replaced"] > 0
    again = Job(log, kept, letters=box())
    for block in blocks[1:]:
        again.keep(again.stage.receive(block, 0.0))
        again = Job(log, dict(again.entries), letters=box())  # and once more
    again.keep(again.stage.finish())
    again.stage.close()
    expected = {"replaced": 10, "unchanged": 5, "nothing_deleted": 2, "tombstones_skipped": 5, "deletions": 3}
    assert read_noted(tmp_path) == {**expected, NOTED_LATE: 0}
    assert again.stage.figures.counts.items() >= expected.items()
    assert "noted" in orjson.loads(Progress().encode("j")), "what has none is of a version before"


def test_what_a_former_version_did_not_count_is_known() -> None:
    former = orjson.loads(Progress(epoch=3).encode("j"))
    del former["noted"]
    found = Progress.decode(orjson.dumps(former), "j")
    found.note({"replaced": 2})
    assert Progress.decode(found.encode("j"), "j").noted == {NOTED_LATE: 1, "replaced": 2}
    assert Progress.decode(None, "j").noted == {}
