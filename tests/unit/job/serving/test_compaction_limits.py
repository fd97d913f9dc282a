"""What compacting leaves in place, and what a base says of deletions that older files do not."""

from __future__ import annotations

import os
from pathlib import Path

from freshet.job.serving.tables.change_log_rows import epochs_of, rows_between
from freshet.job.serving.tables.compaction import Compacted, compact_log
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.support.serving.hand_job import WIDTH, HandJob

NOW_S = 4e9  # in 2096
OLD_S, YOUNG_S = 3600.0, 60.0  # ages, on either side of what is kept in any case


def files_of(hand: HandJob) -> list[str]:
    return sorted(path.name for path in (hand.out / "embeddings").glob("part-*.parquet"))


def epochs_in(hand: HandJob, name: str) -> tuple[int, int]:
    return epochs_of(hand.out / "embeddings" / name)


def compact(hand: HandJob, young: tuple[str, ...] = ()) -> Compacted:
    """Compact, and keep no file longer than has to be; all but the `young` ones are old."""
    for name in files_of(hand):
        at = NOW_S - (YOUNG_S if name in young else OLD_S)
        os.utime(hand.out / "embeddings" / name, (at, at))
    return compact_log(hand.out, keep_s=0.0, now_s=NOW_S)


def alive(hand: HandJob, upto: int) -> dict[int, tuple[int, float]]:
    """The rows of all ids: own epoch and value."""
    found = rows_between(LogFolders(hand.out), -1, upto, False, WIDTH)
    rows = zip(found.ids.tolist(), found.epochs.tolist(), found.rows[:, 0].tolist(), strict=True)
    assert len(set(found.ids.tolist())) == len(found.ids)
    return {id_: (epoch, value) for id_, epoch, value in rows}


def apply_to(hand: HandJob, part: int, epoch: int, rows: dict[int, float], dead: list[int], **told: int) -> None:
    hand.sinks[part].apply(epoch, [hand.block(epoch, part, rows, dead, **told)])


def test_a_file_that_goes_on_past_the_base_stays(tmp_path: Path) -> None:
    """Part 0 has epochs 2 and 3 in one file, part 1 ends with epoch 2: the base, too, ends there."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), ({4: 1.0}, []), marker=1)
    apply_to(hand, 0, 2, {2: 2.0}, [])
    apply_to(hand, 0, 3, {2: 3.0, 5: 3.0}, [], marker=3)
    apply_to(hand, 1, 2, {4: 2.0}, [], marker=2)
    hand.settle()
    [spanning] = [name for name in files_of(hand) if epochs_in(hand, name) == (2, 3)]
    done = compact(hand)
    assert (done.epoch, done.rows, done.removed) == (2, 2, 3)
    assert files_of(hand) == [spanning], "epoch 3 is nowhere else"
    apply_to(hand, 1, 3, {6: 3.0}, [], marker=3)
    hand.settle()
    assert alive(hand, 3) == {2: (3, 3.0), 4: (2, 2.0), 5: (3, 3.0), 6: (3, 3.0)}
    hand.close()


def test_a_base_has_the_deletions_that_a_kept_file_needs(tmp_path: Path) -> None:
    """The file with the row stays for the sake of its age, and the one that deletes the row goes."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({}, []), ({2: 1.0, 3: 1.0}, []), marker=1)
    hand.apply(2, ({}, [2]), ({}, []), marker=2)  # the vertex has moved to part 0 before
    hand.settle()
    [with_row] = [name for name in files_of(hand) if name.startswith("part-1") and epochs_in(hand, name) == (1, 1)]
    done = compact(hand, young=(with_row,))
    assert with_row in files_of(hand)
    assert not [name for name in files_of(hand) if name.startswith("part-0")], "the deletion is in no file of a part"
    assert (done.epoch, done.rows) == (2, 1)
    assert alive(hand, 2) == {3: (1, 1.0)}
    assert ChangeLogReader(hand.out).final().ids.tolist() == [3]
    hand.close()


def test_what_a_restore_may_begin_with_stays_though_nothing_is_to_be_kept(tmp_path: Path) -> None:
    """A restore may write files of the last minutes again, whatever `--keep-changes` says."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), ({4: 1.0}, []), marker=1)
    hand.apply(2, ({2: 2.0}, []), ({4: 2.0}, []), marker=2)
    hand.settle()
    young = tuple(name for name in files_of(hand) if epochs_in(hand, name) == (2, 2))
    assert len(young) == 2
    done = compact(hand, young)
    assert (done.epoch, done.removed, files_of(hand)) == (2, 2, list(young))
    assert alive(hand, 2) == {2: (2, 2.0), 4: (2, 2.0)}
    hand.close()
