from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from freshet.operators.control import (
    ACCEPTED,
    ARRIVAL_MS,
    CONTROLS,
    EVENTS_IN_EPOCH,
    FLAGS,
    LAST,
    MARKER,
    PUBLISH,
    REJECTED,
    REPLAY,
    VERTICES,
    control_values,
    event_ts_of,
)
from freshet.operators.epochs.cut import Cut, ForeignStateError, LostCutError, Share
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import Progress
from freshet.operators.epochs.retention import Commits
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import (
    DeadLetterFile,
    LetterBox,
    LetterQueue,
    ReadCounts,
    read_counts,
    read_reasons,
)
from freshet.operators.parser.rejects import Refusals
from freshet.operators.parser.stages import encoded_blocks
from freshet.operators.telemetry.status_file import StatusFile
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features
from freshet.state.codec import UnknownFormatError, encode
from tests.support.stages.cuts import lines
from tests.support.stages.sealed import WIDTH, Job, edges, ends, events

# -- cuts -------------------------------------------------------------------------------------------------------------


def test_epochs_are_cut_by_count() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(3)
    assert not job.sent
    assert job.stage.waiting
    job.receive(6, first=3)
    assert ends(log) == [4, 8]
    assert {epoch: int(ctl[EVENTS_IN_EPOCH]) for epoch, ctl in job.sent.items()} == {1: 4, 2: 4}
    assert [len(blocks) for blocks in job.blocks.values()] == [2, 2], "one block per part"
    assert job.stage.waiting


def test_a_tick_cuts_what_waits() -> None:
    log = CutLog()
    job = Job(log)
    assert not job.keep(job.stage.tick(5.0)).messages, "nothing waits"
    job.receive(3)
    job.keep(job.stage.tick(6.0))
    assert ends(log) == [3]
    assert not job.stage.waiting
    job.receive(5, first=3)
    assert ends(log) == [3, 7], "the count begins anew"


def test_the_end_of_the_input_cuts_the_rest() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(6)
    job.keep(job.stage.finish())
    assert ends(log) == [4, 6]
    assert [int(ctl[FLAGS]) for ctl in job.sent.values()] == [0, LAST | PUBLISH]
    assert not job.keep(job.stage.finish()).messages


def test_the_log_has_a_cut_before_the_epoch_is_sent(tmp_path: Path) -> None:
    log = CutLog(tmp_path / "cuts")
    outcome = Job(log).stage.receive(edges(4), 0.0)
    assert outcome.messages
    assert lines(tmp_path / "cuts") == ["[1,4,0,[[0,0,4,4]]]"]
    log.close()


def test_one_block_of_events_may_be_many_epochs_and_the_other_way_round() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(13)
    job.receive(1, first=13)
    job.receive(1, first=14)
    job.receive(1, first=15)
    assert ends(log) == [4, 8, 12, 16]


def test_control_values_stand_at_the_places_that_they_are_read_from() -> None:
    found = control_values(1, 2, 3.9, 4, rejected=5, accepted=6, vertices=7)
    assert event_ts_of(found) is None
    places = (MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS, REJECTED, ACCEPTED, VERTICES)
    assert [int(found[place]) for place in places] == [1, 2, 3, 4, 5, 6, 7]
    assert len(found) == CONTROLS
    assert [int(control_values()[place]) for place in places] == [-1, 0, 0, 0, 0, 0, 0]
    assert [event_ts_of(control_values(event_ts=ts)) for ts in (-5, 0, None)] == [-5, 0, None]


def test_control_values() -> None:
    job = Job(CutLog())
    job.receive(4, 0.0)
    job.receive(4, 20.0, first=4)
    job.receive(4, 40.0, first=8)
    one, two, three = (job.sent[epoch] for epoch in (1, 2, 3))
    assert (one[MARKER], two[MARKER], three[MARKER]) == (-1, -1, 1)
    assert [int(ctl[ACCEPTED]) for ctl in (one, two, three)] == [4, 8, 12]
    assert [int(ctl[VERTICES]) for ctl in (one, two, three)] == [5, 9, 13]
    positions = job.blocks[2][0].columns
    assert (positions["pos_next"].tolist(), positions["pos_events"].tolist()) == ([8], [4])
    assert "pos_next" not in job.blocks[2][1].columns, "the first part alone carries them"


# -- restore ----------------------------------------------------------------------------------------------------------


def test_a_restore_replays_from_the_marker_before_last_and_sends_the_same_again() -> None:
    log = CutLog()
    job = Job(log, marker_interval_ms=10**9, marker_epochs_max=3)
    for first in range(0, 50, 5):
        job.receive(5, first=first)
    job.keep(job.stage.tick(1.0))  # epochs of 4, 8, ... 48, 50
    again = Job(log, job.entries, marker_interval_ms=10**9, marker_epochs_max=3)
    assert again.stage.epoch == job.stage.epoch == 13
    assert sorted(again.sent) == list(range(10, 14)), "markers at 3, 6, 9, 12: from the one before last"
    for epoch, ctl in again.sent.items():
        assert ctl[FLAGS] == REPLAY
        for old, new in zip(job.blocks[epoch], again.blocks[epoch], strict=True):
            assert old.header == new.header
            assert set(old.columns) == set(new.columns)
            for name in set(old.columns) - {"ctl"}:
                assert old.columns[name].tobytes() == new.columns[name].tobytes(), (epoch, name)
    assert again.stage.accepted == 50
    for both in (job, again):
        both.receive(4, first=50)
    one, other = ([encode(block.header, block.columns) for block in run.blocks[14]] for run in (job, again))
    assert one == other


def test_after_a_restore_the_log_decides() -> None:
    """What was cut by the clock after the checkpoint is cut so again, however much lies there at once."""
    log = CutLog()
    job = Job(log)
    job.receive(4)
    saved = dict(job.entries)
    for first, count in ((4, 1), (5, 2), (7, 4)):
        job.receive(count, first=first)
        job.keep(job.stage.tick(3.0))
    assert ends(log) == [4, 5, 7, 11]
    again = Job(log, saved)
    again.receive(9, first=4)
    assert [int(again.sent[epoch][EVENTS_IN_EPOCH]) for epoch in (2, 3, 4)] == [1, 2, 4]
    assert ends(log) == [4, 5, 7, 11], "two are left, too few for an epoch"
    assert not again.sent[2][FLAGS] & REPLAY, "beyond the checkpoint it is no replay"


def test_ticks_wait_for_the_log() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(3)
    job.keep(job.stage.tick(3.0))
    again = Job(log)
    again.receive(2)
    assert not again.keep(again.stage.tick(4.0)).messages, "epoch 1 had three events"
    again.receive(1, first=2)
    assert 1 in again.sent


def test_journaled_events_that_were_cut_after_the_checkpoint_are_sealed_without_any_new_event() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(3)
    saved = dict(job.entries)
    job.keep(job.stage.tick(3.0))
    again = Job(log, saved)
    assert again.sent.keys() == {1}
    assert not again.stage.waiting


def test_events_that_wait_are_restored_too() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(6)
    again = Job(log, job.entries)
    assert again.stage.accepted == 6
    again.receive(2, first=6)
    assert ends(log) == [4, 8]


def test_a_lost_cut_is_noticed() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(13)
    for missing in (1, 2, 3):
        shorter = CutLog()
        for epoch in range(1, missing):
            shorter.append(log.cut_of(epoch))
        with pytest.raises(LostCutError, match=f"has no epoch {missing}, but the state has passed it"):
            Job(shorter, job.entries)


def test_a_state_says_whose_it_is() -> None:
    job = Job(CutLog(job="one"))
    job.receive(1)
    assert not job.sent, "from its first entries on"
    Job(CutLog(job="one"), job.entries)
    with pytest.raises(ForeignStateError, match="the state is that of job one, expected one of job two"):
        Job(CutLog(job="two"), job.entries)


def test_a_restore_needs_no_cuts_before_the_marker_that_it_begins_at(tmp_path: Path) -> None:
    commits = Commits()
    log = CutLog(tmp_path / "cuts", retention=commits, segment_bytes=1)
    job = Job(log, marker_interval_ms=10**9, marker_epochs_max=3)
    for first in range(0, 400, 4):
        job.receive(4, first=first)
        commits.begin()
        commits.commit(1)
    log.close()
    again = CutLog(tmp_path / "cuts")
    assert again.first > 90
    restored = Job(again, job.entries, marker_interval_ms=10**9, marker_epochs_max=3)
    assert (restored.stage.epoch, restored.stage.accepted, min(restored.sent)) == (100, 400, 97)
    del job.entries["markers"]
    with pytest.raises(UnknownFormatError, match="does not say where the input stood at epoch 96"):
        Job(CutLog(tmp_path / "cuts"), job.entries)


def test_a_state_from_before_a_marker_finds_its_cuts_behind_it(tmp_path: Path) -> None:
    """What was committed last is older than the marker that lets cuts go: killed in between, it goes on."""
    commits, saved = Commits(), dict[str, bytes]()
    log = CutLog(tmp_path / "cuts", retention=commits, segment_bytes=1)
    job = Job(log, marker_interval_ms=10**9, marker_epochs_max=3)
    for epoch in range(1, 100):  # the last one is a marker, and not committed
        saved = dict(job.entries)
        job.receive(4, first=4 * epoch - 4)
        commits.begin()
        commits.commit(int(epoch < 99))
    log.close()
    again = CutLog(tmp_path / "cuts")
    restored = Job(again, saved, marker_interval_ms=10**9, marker_epochs_max=3)
    assert (again.first, restored.stage.epoch, min(restored.sent)) == (94, 98, 94)


def test_a_lost_journal_is_noticed() -> None:
    log = CutLog()
    job = Job(log)
    job.receive(4)
    job.receive(8, first=4)
    first, second = sorted(key for key in job.entries if key.startswith("journal/"))
    with pytest.raises(LostCutError, match="the journal begins at event 4, the cut to replay from is at 0"):
        Job(log, {key: value for key, value in job.entries.items() if key != first})
    with pytest.raises(LostCutError, match="epoch 2 has events 4 to 8, the journal has 0 of them"):
        Job(log, {key: value for key, value in job.entries.items() if key != second})
    with pytest.raises(LostCutError, match="epoch 1 has events 0 to 4, the journal has 0 of them"):
        Job(log, {key: value for key, value in job.entries.items() if key not in (first, second)})


def test_an_input_that_has_become_shorter_is_noticed() -> None:
    log = CutLog()
    log.append(Cut(1, 7, False, (Share(0, 0, 7, 7),)))
    job = Job(log)
    job.receive(5)
    lacks = r"epoch 1 was cut before the restart and lacks 2 of 7 events of a\.jsonl, up to position 7"
    with pytest.raises(LostCutError, match=f"the input ends at event 5, but {lacks}"):
        job.stage.finish()


# -- what only the graph's state shows to be wrong --------------------------------------------------------------------


def test_a_second_typed_loop_goes_to_the_dead_letters_once(tmp_path: Path) -> None:
    """GCN layers know one self-loop per vertex."""
    records = [{"op": "add_edge", "src": 1, "dst": 1, "type": kind, "weight": 2} for kind in ("a", "b")]
    records += [{"op": "add_edge", "src": k, "dst": k + 1} for k in range(2)]
    log, letters = CutLog(), LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"))
    job = Job(log, letters=letters, forbid_typed_loops=True)
    job.keep(job.stage.receive(events(records), 0.0))
    assert (job.sent[1][REJECTED], job.sent[1][ACCEPTED]) == (1, 3)
    (letter,) = map(orjson.loads, (tmp_path / "dead.jsonl").read_bytes().splitlines())
    assert "self-loop" in letter["error"]
    assert (letter["source"], letter["offset"]) == ("a.jsonl", 1)
    assert orjson.loads(letter["raw"]) == {"op": "add_edge", "src": 1, "dst": 1, "weight": 2.0, "type": "b"}
    again = Job(log, job.entries, letters=letters, forbid_typed_loops=True)
    again.receive(4, first=10)
    assert (again.sent[2][REJECTED], again.sent[2][ACCEPTED]) == (1, 7)
    assert len((tmp_path / "dead.jsonl").read_bytes().splitlines()) == 1, "a replay tells nobody"


def test_a_message_of_refused_edges_has_a_thousand_letters_and_one_an_epoch() -> None:
    core, letters = (
        Partitioner(1, Features(WIDTH), PartitionerConfig(types_max=1)),
        Refusals(["topic"], lambda *_: None),
    )
    rows = [("add_edge", 1, 2, 1.0, f"t{k}") for k in range(2501)]
    block = replace(events_of(rows, Features(WIDTH)), position=np.full(2501, 7))
    found = []
    for start in range(0, 2501, 700):
        piece = block.slice(start, start + 700)
        found.append(list(letters.letters(piece, core.partition(piece).rejected)))
    assert [len(one) for one in found] == [699, 302, 1, 1]
    assert sum(letter.records for one in found for letter in one) == 2500
    assert [one[-1].records for one in found] == [1, 399, 700, 401]
    assert {(letter.source, letter.offset) for one in found for letter in one} == {("topic", 6)}
    assert found[0][0].error == "type: expected at most 1 edge types at a time in a job, got 't1' as one more"


def test_records_that_the_parser_rejected_are_counted() -> None:
    block = Parser(Features(WIDTH), None, None).parse_jsonl(
        b'{"op":"add_vertex","id":1}\nnonsense\n{"op":"add_vertex","id":2}\n', Origin()
    )[0]
    log = CutLog()
    job = Job(log)
    job.keep(job.stage.receive(block.encode(), 0.0))
    again = Job(log, job.entries)
    again.keep(again.stage.tick(1.0))
    assert (again.sent[1][REJECTED], again.sent[1][ACCEPTED]) == (1, 2)


def test_reasons_are_as_many_as_what_was_rejected_whatever_was_killed(tmp_path: Path) -> None:
    """They were counted where the letters were written, twice a second: a kill lost some, and a replay added some."""
    parser, log = Parser(Features(WIDTH), None, None), CutLog()
    blocks = []
    for bad in (b"nonsense", b'{"op":"fly"}', b"[1]", b"nonsense"):
        lines = b'{"op":"add_edge","src":1,"dst":2}\n' + bad + b"\n" + bad
        events, letters = parser.parse_jsonl(lines, Origin())
        blocks += [block.encoded for block in encoded_blocks(events, letters, 1000)]
    expected = {"not JSON": 4, "op: expected one of": 2, "expected a JSON object": 2}

    def box() -> LetterBox:
        return LetterBox(LetterQueue(), tmp_path, "partitioner")

    job = Job(log, letters=box())
    job.keep(job.stage.receive(blocks[0], 0.0))
    kept = dict(job.entries)
    for block in blocks[1:3]:  # of an attempt that is killed, and leaves its word
        job.stage.receive(block, 0.0)
    job.stage.close()
    assert sum(read_reasons(tmp_path).values()) == 6
    again = Job(log, kept, letters=box())
    assert sum(read_reasons(tmp_path).values()) == 2, "as the state has it"
    assert read_counts(tmp_path) == ReadCounts(3, 2)
    for block in blocks[1:]:
        again.keep(again.stage.receive(block, 0.0))
    again.keep(again.stage.finish())
    again.stage.close()
    found = read_reasons(tmp_path)
    assert sum(found.values()) == again.stage.progress.rejected_in_all == 8
    assert sorted(found.values()) == sorted(expected.values())


@pytest.mark.parametrize("by_clock", [True, False])
def test_what_was_rejected_before_a_pause_is_told_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_clock: bool
) -> None:
    """It was told with the next block alone: --max-rejected would have waited for that."""
    bad = Parser(Features(WIDTH), None, None).parse_jsonl(b"nonsense\nand more\n", Origin(), 4)[0].encode()
    job = Job(CutLog(), letters=LetterBox(LetterQueue(), tmp_path, "partitioner"), epoch_ms=20 if by_clock else 0)
    monkeypatch.setattr(StatusFile, "is_due", lambda _self, _now_ms: False)
    job.keep(job.stage.receive(bad, 0.0))
    assert (read_counts(tmp_path), job.stage.is_due(1.0)) == (ReadCounts(), True)
    monkeypatch.setattr(StatusFile, "is_due", lambda _self, _now_ms: True)
    job.keep(job.stage.tick(1.0))
    assert (read_counts(tmp_path), job.stage.is_due(2.0)) == (ReadCounts(2, 2), False)
    assert job.sent == {}, "no epoch comes of it"


def test_records_rejected_behind_the_last_epoch_are_told_at_the_end() -> None:
    bad = Parser(Features(WIDTH), None, None).parse_jsonl(b"nonsense\nand more\n", Origin(), 4)[0].encode()
    for killed in (False, True):
        job = Job(log := CutLog())
        job.receive(4)
        job.keep(job.stage.receive(bad, 0.0))
        if killed:
            job = Job(log, job.entries)
        job.keep(job.stage.finish())
        assert (job.sent[2][REJECTED], job.sent[2][ACCEPTED], job.sent[2][EVENTS_IN_EPOCH]) == (2, 4, 0), killed
        job.keep(job.stage.finish())
        assert 3 not in job.sent, "once"


def test_what_a_former_version_counted_beside_is_passed_over() -> None:
    former = orjson.loads(Progress(epoch=3, rejected=2).encode("j")) | {"streamed_ms": 70}
    assert Progress.decode(orjson.dumps(former), "j") == Progress(epoch=3, rejected=2)
