"""The table of a job as its servers keep it: from tails and change log, after kills, by growth, with ids that move."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from freshet.job.errors import UsageError
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables import place
from freshet.job.serving.tables.compaction import KEEP_AT_LEAST_S, compact_log
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.served_job import ServedJob, await_job
from freshet.job.serving.tables.watching import Classes, Watch, changes
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.tail.reader import Beat
from freshet.state.served.layout import FOLDER_BYTES, T_BEAT_US, T_FOLDER, T_TAIL_FAILURES
from freshet.state.served.plain import PlainReader
from freshet.state.served.writer import TableWriter
from tests.support.runs.jobs import ROOT
from tests.support.serving.hand_job import JOB_ID, HandJob
from tests.unit.job.serving.test_bounds import until


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandJob]:
    made = HandJob(tmp_path / "O")
    yield made
    for path in place.SHM.glob(f"freshet-{JOB_ID}-*"):
        path.unlink()


def follower_of(hand: HandJob) -> Follower:
    job = ServedJob.read(hand.out)
    assert job is not None
    follower = Follower(job, hand.out / "tables", 1 << 20)
    follower._parts = [PartTails(job.tails, part, job.word) for part in range(job.parts)]
    for part in follower._parts:
        part._looked = float("-inf")
    follower.start()
    return follower


def catch_up(follower: Follower, upto: int) -> None:
    for _ in range(2000):
        for part in follower._parts:
            part._looked = float("-inf")  # no waiting between two looks
        follower._asked_at = float("-inf")
        if not follower.step() and follower.table.epoch >= upto:
            break
    assert follower.table.epoch == upto


def seen(hand: HandJob) -> tuple[int, dict[object, tuple[int, float]]]:
    answer = Lookup(CurrentTable(hand.out / "tables")).all()
    ids = answer.ids.tolist() if isinstance(answer.ids, np.ndarray) else answer.ids.decode()
    return answer.epoch, {
        id_: (own, row[0]) for id_, own, row in zip(ids, answer.epochs.tolist(), answer.rows.tolist(), strict=True)
    }


def test_an_epoch_shows_when_all_parts_have_it(hand):
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []))
    follower = follower_of(hand)
    catch_up(follower, 1)
    assert seen(hand) == (1, {2: (1, 1.0), 3: (1, 1.0)})
    first, second = hand.sinks
    first.apply(2, [hand.block(2, 0, {2: 2.0}, [])])
    for _ in range(3):
        follower.step()
    assert seen(hand) == (1, {2: (1, 1.0), 3: (1, 1.0)}), "half an epoch is none"
    second.apply(2, [hand.block(2, 1, {}, [3])])
    catch_up(follower, 2)
    assert seen(hand) == (2, {2: (2, 2.0)})
    lookup = Lookup(CurrentTable(hand.out / "tables"))
    assert lookup.table.positions().tolist() == [[0, 0, 20, 2]]
    hand.close()
    follower.close(forget=True)
    assert not list(place.SHM.glob(f"freshet-{JOB_ID}-*"))
    with pytest.raises(NotReadyError, match="freshet serve"):
        CurrentTable(hand.out / "tables").served()


def test_other_servers_may_tell_of_any_number_of_failures(hand, monkeypatch):
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []))
    follower = follower_of(hand)
    monkeypatch.setattr(follower, "_beats", lambda: [Beat(time.time_ns() // 1000, 1, 2**62, 1)] * 5)
    follower._beat(time.monotonic())
    assert follower.table.word(T_TAIL_FAILURES) == 2**62
    follower.close(forget=True)


def test_the_next_file_of_a_tail_is_looked_for_at_once(hand, monkeypatch):
    """Who looked at the folder a moment ago does not wait for his turn when a file has come to its end."""
    hand.apply(1, ({2: 1.0}, []))
    follower = follower_of(hand)
    catch_up(follower, 1)
    monkeypatch.setattr("freshet.job.serving.tables.part_tails._LOOK_S", 1e9)
    for part in follower._parts:
        part._looked = time.monotonic()
    before = set((hand.out / "tables" / "tail").glob("*.tail"))
    hand.apply(2, ({2: 2.0}, []), marker=1)
    hand.apply(3, ({2: 3.0}, []))
    assert len(set((hand.out / "tables" / "tail").glob("*.tail")) - before) == 2
    deadline = time.monotonic() + 60
    while follower.table.epoch < 3:
        assert time.monotonic() < deadline
        follower._asked_at = time.monotonic()  # not from the change log
        follower.step()
    assert seen(hand) == (3, {2: (3, 3.0)})
    hand.close()
    follower.close(forget=True)


def test_an_id_that_moves_between_parts_stays(hand):
    follower = follower_of(hand)
    hand.apply(1, ({2: 1.0}, []))
    hand.apply(2, ({}, [2]), ({2: 2.0}, []))  # the part that lets it go comes first
    catch_up(follower, 2)
    assert seen(hand) == (2, {2: (2, 2.0)})
    hand.apply(3, ({2: 3.0}, []), ({}, [2]))  # and last
    catch_up(follower, 3)
    assert seen(hand) == (3, {2: (3, 3.0)})
    hand.close()
    follower.close(forget=True)


def test_strings_growth_and_a_killed_server(tmp_path):
    hand = HandJob(tmp_path / "O", "string")
    follower = follower_of(hand)
    lookup = Lookup(CurrentTable(hand.out / "tables"))
    before = lookup.table
    hand.apply(1, ({1: 1.0, 2: 1.0}, []))
    catch_up(follower, 1)
    assert lookup.get(lookup.ids_of(["v2", "none"])).ids.decode() == ["v2"]
    hand.apply(2, ({key: 2.0 for key in range(2000)}, []))
    catch_up(follower, 2)
    assert before.superseded
    assert len(seen(hand)[1]) == 2000
    assert len(list(place.SHM.glob(f"freshet-{JOB_ID}-*"))) == 1
    path = follower.table.path
    del follower  # killed: nothing is removed
    hand.apply(3, ({}, [5]), ({7: 3.0}, []))
    again = follower_of(hand)
    assert again.taken_over
    assert again.table.path == path
    catch_up(again, 3)
    assert lookup.table.epoch == 3
    epoch, rows = seen(hand)
    assert (epoch, len(rows), rows["v7"]) == (3, 1999, (3, 3.0))
    hand.close()
    again.close(forget=True)


_FIRST_ANSWERS = """
import sys
from pathlib import Path
from freshet.job.serving import server
from freshet.job.serving.doors import exchange, flight_server
from freshet.job.serving.clients.asked import as_batch, ids_of
from freshet.job.serving.protocol.columns import rows_of
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.place import left_behind
from freshet.job.serving.tables.served_job import ServedJob

out = Path(sys.argv[1])
job, current = ServedJob.read(out), CurrentTable(out / "tables")
current.begin_with(left_behind(job, out / "tables").path)
lookup = Lookup(current)
answer = lookup.get(exchange.ids_of_column(as_batch(ids_of([2, 3])).column(0)))
table = lookup.as_table(answer)
assert rows_of(lookup.as_batch(answer).column(2)).shape == (2, 4)
assert not (slow := {"numba", "pandas", "fastapi", "pyarrow.parquet"} & set(sys.modules)), slow
assert (answer.epoch, table["id"].to_pylist(), table["epoch"].to_pylist()) == (1, [2, 3], [1, 1])
assert Health(lookup).figures()["epoch"] == 1
"""


def test_a_new_server_answers_before_it_has_loaded_what_is_slow(hand):
    """From the table that a killed one left; then that table is taken over, and goes on."""
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []))
    follower = follower_of(hand)
    catch_up(follower, 1)
    del follower  # killed
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_ANSWERS, str(hand.out)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    job, current = ServedJob.read(hand.out), CurrentTable(hand.out / "tables")
    assert job is not None
    left = place.left_behind(job, hand.out / "tables")
    assert left is not None
    current.begin_with(left.path)
    lookup = Lookup(current)
    early = lookup.table
    assert isinstance(early, PlainReader)
    hand.apply(2, ({2: 2.0}, []))
    current.go_on()
    again = follower_of(hand)
    catch_up(again, 2)
    assert not isinstance(lookup.table, PlainReader)
    assert [one.get(lookup.ids_of([2])).own[0] for one in (early, lookup.table)] == [2, 2]  # both go on
    hand.close()
    again.close(forget=True)


def test_what_tails_lack_comes_from_the_change_log(hand):
    for epoch in (1, 2, 3):
        hand.apply(epoch, ({epoch: float(epoch)}, []), ({}, [epoch - 1] if epoch > 1 else []), marker=epoch)
    hand.settle()
    tails = hand.out / "tables" / "tail"
    for path in tails.glob("*.tail"):
        path.unlink()
    follower = follower_of(hand)
    expected = {1: (1, 1.0), 2: (2, 2.0), 3: (3, 3.0)}  # deleted in the other part before they came
    assert follower.table.epoch == 3
    assert seen(hand)[1].keys() <= expected.keys()
    assert ChangeLogReader(hand.out).final().ids.tolist() == sorted(seen(hand)[1])
    # A gap while it runs: the tail of a part was lost for an epoch.
    hand.apply(4, ({4: 4.0}, []), marker=4)
    for path in tails.glob("part-1-*.tail"):
        path.unlink()
    hand.settle()
    catch_up(follower, 4)
    hand.apply(5, ({}, [4]), ({9: 5.0}, []))
    catch_up(follower, 5)
    assert seen(hand)[1][9] == (5, 5.0)
    assert 4 not in seen(hand)[1]
    hand.close()
    follower.close(forget=True)


def test_a_restored_attempt_comes_again_and_changes_nothing(hand):
    follower = follower_of(hand)
    for epoch in (1, 2):
        hand.apply(epoch, ({2: float(epoch)}, []))
    catch_up(follower, 2)
    hand.open()  # the first attempt is not closed: two are alive at once
    for epoch in (1, 2, 3):
        hand.apply(epoch, ({2: float(epoch)}, []))
        assert follower.table.epoch >= 2
    catch_up(follower, 3)
    assert seen(hand) == (3, {2: (3, 3.0)})
    hand.close()
    follower.close(forget=True)


def copy_of_table(left: Path, name: str, folder: Path, says: bool = True) -> Path:
    """As another job's server would have left it; `says`: the table names its folder, whose path is not too long."""
    job_id, _, rest = left.name.removeprefix("freshet-").split("-")
    path = left.with_name(f"freshet-{job_id}{name}-{place.mark_of(folder)}-{rest}")
    path.write_bytes(left.read_bytes())
    text = str(folder).encode() if says else b""
    np.memmap(path, np.uint8)[8 * T_FOLDER :][:FOLDER_BYTES] = np.frombuffer(text.ljust(FOLDER_BYTES, b"\0"), np.uint8)
    return path


def test_tables_that_nobody_holds_go_and_those_of_the_living_stay(hand, tmp_path):
    """Of a former job in the same folder, and of folders that are gone; a killed server's waits for its next one."""
    former = follower_of(hand)
    left, ours, there, gone = former.table.path, hand.out / "tables", tmp_path / "there", tmp_path / "gone"
    there.mkdir(), gone.mkdir()  # until its table is held: others remove tables of folders that are gone
    dead, alive = copy_of_table(left, "dead", ours), copy_of_table(left, "alive", ours)
    elsewhere, lost, held = (copy_of_table(left, *one) for one in (("a", there), ("b", gone), ("c", gone)))
    nameless = copy_of_table(left, "nameless", ours, says=False)
    writers = [TableWriter.take_over(path) for path in (alive, held)]
    gone.rmdir()
    np.memmap(alive, np.int64)[T_BEAT_US] -= 100_000_000  # it stands still
    again = follower_of(hand)
    assert all(path.exists() for path in (again.table.path, alive, elsewhere, held))
    until(lambda: not any(path.exists() for path in (dead, lost, nameless)))  # another server may just remove `lost`
    del writers
    for path in (alive, held, elsewhere):
        path.unlink(missing_ok=True)
    hand.close()
    again.close(forget=True)


def test_one_server_a_job(hand):
    with place.only_server(hand.out / "tables"), pytest.raises(UsageError, match="serves it already"):
        with place.only_server(hand.out / "tables"):
            pass
    with pytest.raises(UsageError, match="O/tables"):
        await_job(hand.out, 0.1)
    with pytest.raises(UsageError, match="holds no job"):
        await_job(hand.out / "no" / "tables", 0.1)


def test_compacting_keeps_what_the_folder_says(hand):
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []), marker=1)
    hand.apply(2, ({2: 2.0}, [3]), marker=2)
    hand.settle()
    before, scanned = ChangeLogReader(hand.out).final(), ChangeLogReader(hand.out).scan()
    done = compact_log(hand.out)
    assert (done.epoch, done.rows, done.removed) == (2, 2, 0)
    again = ChangeLogReader(hand.out)
    assert again.final().epochs.tolist() == before.epochs.tolist()
    assert again.scan().counts.tolist() == scanned.counts.tolist(), "`freshet check` counts rows"
    late = 2e12  # long after all files
    hand.apply(3, ({5: 3.0}, []), marker=3)  # not covered yet
    hand.settle()
    done = compact_log(hand.out, KEEP_AT_LEAST_S, now_s=late)
    assert done.removed >= 2
    names = sorted(path.name for path in (hand.out / "embeddings").glob("*.parquet"))
    assert [name for name in names if name.startswith("base-")] == [f"base-{done.epoch:012d}.parquet"]
    after = ChangeLogReader(hand.out).state_at(2 if done.epoch == 2 else None)
    assert {2, 4} <= set(after.ids.tolist())
    assert 3 not in after.ids.tolist()
    assert after.duplicates == before.duplicates == 0
    kept = dict(zip(after.ids.tolist(), after.epochs.tolist(), strict=True))
    assert (kept[2], kept[4]) == (2, 1)
    follower = follower_of(hand)
    assert {2: (2, 2.0), 4: (1, 1.0)}.items() <= seen(hand)[1].items()
    hand.close()
    follower.close(forget=True)


def test_a_server_behind_a_base_learns_what_was_deleted(hand):
    """The files that told of it, and the tails, are gone."""
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []), marker=1)
    hand.settle()
    follower = follower_of(hand)
    lookup = Lookup(CurrentTable(hand.out / "tables"))
    assert sorted(seen(hand)[1]) == [2, 3, 4]
    hand.apply(2, ({2: 2.0}, [3]), marker=2)
    hand.settle()
    done = compact_log(hand.out, KEEP_AT_LEAST_S, now_s=2e12)
    assert (done.epoch, done.rows, len(list((hand.out / "embeddings").glob("part-*.parquet")))) == (2, 2, 0)
    hand.apply(3, ({5: 3.0}, []), marker=3)
    hand.settle()
    for path in (hand.out / "tables" / "tail").glob("*.tail"):
        path.unlink()
    catch_up(follower, 3)
    assert seen(hand) == (3, {2: (2, 2.0), 4: (1, 1.0), 5: (3, 3.0)})
    assert lookup.table.positions().tolist() == [[0, 0, 30, 3]]
    hand.close()
    follower.close(forget=True)


@pytest.mark.parametrize("starts", [True, False])
def test_compaction_behind_the_back_of_a_server_that_reads_the_change_log(hand, monkeypatch, starts):
    """It has asked how far the job is, and then the files up to there become those of a newer base."""
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []), marker=1)
    hand.settle()
    compact_log(hand.out, KEEP_AT_LEAST_S, now_s=2e12)
    follower = None if starts else follower_of(hand)
    hand.apply(2, ({2: 2.0}, [3]), marker=2)
    hand.settle()
    asked = ServedJob.complete_epoch

    def complete_epoch(job: ServedJob) -> int:
        found = asked(job)
        monkeypatch.setattr(ServedJob, "complete_epoch", asked)
        hand.apply(3, ({5: 3.0}, []), marker=3)
        hand.settle()
        assert compact_log(hand.out, KEEP_AT_LEAST_S, now_s=2e12).epoch == 3
        return found

    for path in (hand.out / "tables" / "tail").glob("*.tail"):
        path.unlink()
    monkeypatch.setattr(ServedJob, "complete_epoch", complete_epoch)
    follower = follower or follower_of(hand)
    catch_up(follower, 3)
    assert seen(hand) == (3, {2: (2, 2.0), 4: (1, 1.0), 5: (3, 3.0)})
    hand.close()
    follower.close(forget=True)


def test_watching(hand):
    hand.apply(1, ({2: 1.0, 3: -1.0}, []), marker=1)
    hand.settle()
    job = ServedJob.read(hand.out)
    watch = Watch(job)
    classes = Classes(job, watch.epoch)
    assert watch.epoch == 1
    hand.apply(2, ({2: 2.0}, []), ({}, [3]))
    hand.apply(3, ({2: -2.0}, []))
    found = []
    for epoch, parts in watch.epochs(lambda: len(found) == 2):
        found.append([(change, classes.changed(change, row)) for change, row in changes(epoch, parts, False)])
    (same, gone), (turned,) = found
    assert same == ({"id": 2, "epoch": 2}, None)
    assert (gone[0], gone[1]["class"]) == ({"id": 3, "epoch": 2, "deleted": True}, None)
    expected = [int(hand.plan.logits(np.full((1, 4), value, np.float32)).argmax()) for value in (1.0, -2.0)]
    assert (
        turned[1] is None if expected[0] == expected[1] else (turned[1]["before"], turned[1]["class"]) == (*expected,)
    )
    watch.close()
    hand.close()
