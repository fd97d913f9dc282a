"""Keeps the table of a job: every epoch is applied once all parts have published it, from the tails or the change log.

An epoch is the same in every attempt of the job, so any copy of it will do. What is applied again changes nothing.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freshet.files.json_file import DamagedFileError
from freshet.job.console import say
from freshet.job.serving.feeds.table_progress import TableProgress
from freshet.job.serving.tables import place
from freshet.job.serving.tables.change_log_rows import positions_at, rows_between, times_upto
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.log_proof import newest_base
from freshet.operators.sink.tail.reader import Beat, TailEpoch
from freshet.state.served.ids import Ids, Texts, slice_of, text_bytes
from freshet.state.served.layout import HISTORY_BYTES, RUNS, SHM, T_HEAP_USED, T_LIVE, TableShape
from freshet.state.served.mapped import NEWEST, HistoryTooShortError
from freshet.state.served.reader import TableReader
from freshet.state.served.times import Moment
from freshet.state.served.writer import TableWriter

_STALLED_S = 0.15  # without an epoch from the tails, the change log is asked
_BEAT_S = 0.25
_POLL_S = 0.002
_WAITS_S = 3.0  # until a line says that a table waits for what readers have seen
_ENDED_S = 1.0  # between two looks at whether the job has ended
_MANY = 2**62  # failures; others may send any number
_NO_SPACE, _AGAIN_S = (errno.ENOSPC, errno.EDQUOT), 0.5


class Follower(TableProgress):
    """The one writer of a job's table: call `start`, then `step` repeatedly; for one thread.

    Invariant: a table that readers get is of exactly its epoch, and no earlier than what they have seen. A new table is
    offered to them once it has reached that epoch (`_offer`); until then they keep the former one.

    Epochs of the table are those of the job, counted from `job.base` on.
    """

    origin = "the change log"
    _knows_log = True  # whether this machine sees it

    def __init__(self, job: ServedJob, tables: Path, history_bytes: int = HISTORY_BYTES) -> None:
        super().__init__(job, tables)
        self._history_bytes = history_bytes
        self._parts = [PartTails(job.tails, part, job.word) for part in range(job.parts)]
        self._beat_at = self._moved_at = self._asked_at = self._ended_at = float("-inf")
        self._heard_epoch = self._source_us = self._logged = 0
        self._is_gone = False
        self.ended = RUNS
        self.taken_over = self.is_left_behind = False  # the latter: others have another job in the place of this one
        self.trouble: str | None = None  # why readers get nothing newer, where the server knows
        self.following: Follower | None = None  # whose table has taken the place of this one's
        self.beside: Sequence[Follower] = ()  # those of all kinds of the server, this one, too
        self.upto = NEWEST  # epoch past which it does not go for now

    def start(self, until: Callable[[], bool] = lambda: False) -> None:
        """Take over the table of a killed server, or load the base; a table is readable on return.

        If there is no space for it, or a file of the change log is damaged, retry until `until` returns True.
        """
        while not self._tried(self._begin) and not until():
            pass
        began = time.monotonic()
        while self._shown is None and not until():
            if not self._tried(self.step):
                if time.monotonic() - began > _WAITS_S:
                    there = f"readers have seen epoch {self._floor}, and there is nothing past {self.table.epoch} yet"
                    self._say_once(f"{there}: they get what there was until the job is there again")
                time.sleep(_POLL_S)

    def _begin(self) -> bool:
        self._floor = max(self._floor, place.shown_epoch(self.job, self.tables))
        found = self._left()
        try:
            if found is not None:
                self.taken_over, self.table = True, found
                positions = TableReader(found.path).positions()
                self._positions = {(int(a), int(b)): (int(c), int(d)) for a, b, c, d in positions}
                if not self._positions:
                    self._read_positions(found.epoch - self.job.base)
            else:
                self._load()
            self._offer()
        except OSError:
            if found is None and hasattr(self, "table"):
                self._drop(self.table)  # the next try makes another one
            raise
        return True

    def run(self, until: Callable[[], bool]) -> None:
        """Follow the job until `until` returns True, or until it is left behind."""
        while not (until() or self.is_left_behind):
            if not self.turn():
                time.sleep(_POLL_S)

    def turn(self) -> bool:
        """Apply the next epoch if it is there, and do what is due; whether it moved."""
        return self._tried(self.step)

    def _tried(self, act: Callable[[], bool]) -> bool:
        """Do it; what people must see to, such as a full disk, is said, and then it is to be tried again."""
        try:
            done = act()
        except (OSError, DamagedFileError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_SPACE:
                raise
            full = f"no space for the table: free some in {SHM}, or on the disk of {self.tables}"
            trouble = full if isinstance(error, OSError) else str(error)
            self._say_once(trouble, "; until then readers get what there is")
            time.sleep(_AGAIN_S)
            return False
        if done and self.trouble is not None:
            say(f"the table goes on, at epoch {self.table.epoch}")
            self.trouble = None
        return done

    def _say_once(self, trouble: str, more: str = "") -> None:
        if trouble != self.trouble:
            say(trouble + more)
        self.trouble = trouble

    def step(self) -> bool:
        """Apply the next epoch if it is there; whether it was."""
        now = time.monotonic()
        if now - self._beat_at >= _BEAT_S:
            self._beat(now)
        self._offer()  # where there was no space for that
        if self.table.epoch >= self.upto:
            return False
        wanted = self.table.epoch + 1
        found: list[TailEpoch] = []
        for part in self._parts:
            one = part.get(wanted - self.job.base)
            if one is None:
                return self._stalled(now)
            found.append(one)
        self._apply(wanted, found)
        self._offer()
        self._moved_at = now
        return True

    def close(self, forget: bool) -> None:
        """Let the tails go; with `forget` the table, too."""
        for part in self._parts:
            part.close()
        if forget and hasattr(self, "table"):
            for table in (self.table, self._shown or self.table):
                table.supersede()
            place.forget(self.job, self.tables)

    @property
    def next_one(self) -> Follower | None:
        """The follower that is about to take the place of this one, once it has a table; None without such."""
        return None

    def next_figures(self) -> dict[str, Any] | None:
        """Return what health says of the job that is about to take the place of this one; None without such."""
        return None

    def give_way(self) -> None:
        """Let another follower's table, which readers find already, take the place of this one's."""
        self.close(forget=False)
        for table in {self.table, self._shown or self.table}:
            table.supersede()
            if not self._is_kept(table):
                table.path.unlink(missing_ok=True)

    def _is_kept(self, _table: TableWriter) -> bool:
        """Return whether readers may go on reading a table that another one has replaced."""
        return False

    def _left(self) -> TableWriter | None:
        """The table that a killed server left, if it will do."""
        found = place.take_over(self.job, self.tables)
        return found if found is not None and found.can_go_on else None

    def _apply(self, epoch: int, parts: list[TailEpoch]) -> None:
        pieces = [(_ids_of(one, self.job.strings), one) for one in parts]
        put = [(slice_of(ids, 0, one.changed), one.rows) for ids, one in pieces if one.changed]
        self._make_room(sum(len(ids) for ids, _ in put), sum(text_bytes(ids) for ids, _ in put))
        if self.table.epoch != epoch - 1:  # there is a new table, which goes on from where it stands
            return
        for ids, one in pieces:  # deletions first: an id may move between parts
            if one.deleted:
                self.table.remove(epoch, slice_of(ids, one.changed, one.changed + one.deleted))
        for ids, rows in put:
            self.table.put(epoch, ids, rows)
        moved = [row for one in parts for row in one.positions.tolist() if row[0] >= 0]
        if moved:
            self._positions |= {(source, partition): (upto, epoch) for source, partition, upto, _ in moved}
            self._set_positions()
        arrived_ms = max(one.arrived_ms for one in parts) or None
        event_ts = max((ts for one in parts if (ts := one.event_ts) is not None), default=None)
        self.table.publish(epoch, max(one.published_us for one in parts), Moment(arrived_ms, event_ts))

    def _stalled(self, now: float) -> bool:
        """No tail has the next epoch: it may be in the change log alone."""
        if now - max(self._moved_at, self._asked_at) < _STALLED_S:
            return False
        self._asked_at = now
        self._logged, before = self.job.complete_epoch(), self._job_epoch
        upto = min(self._logged, self.upto - self.job.base)
        if upto <= before:
            return False
        found = None
        if not self._is_behind_base():
            found = rows_between(self.job.log, before, upto, self.job.strings, self.job.width)
        if found is None or self._is_behind_base():  # there may be one now, and the files are gone that it covers
            self._begin_anew()
            return True
        self._make_room(len(found.ids), text_bytes(found.ids))
        if self._job_epoch == before:  # else there is a new table, which goes on from where it stands
            self.table.remove(self.job.base + upto, found.dead)
            self.table.put(self.job.base + found.epochs, found.ids, found.rows)
            self._read_positions(upto)
            self.table.publish(self.job.base + upto, so_far=times_upto(self.job.log, upto, before))
        self._offer()
        return True

    def _is_behind_base(self) -> bool:
        """Return whether deletions after the table's epoch may no longer be in the change log."""
        return newest_base(self.job.log) > self._job_epoch

    def _load(self) -> None:
        """Make a table of what the change log has."""
        upto = -1
        while upto < 0 or newest_base(self.job.log) > upto:  # compaction took files away while they were read
            upto = self.job.complete_epoch()
            found = rows_between(self.job.log, -1, upto, self.job.strings, self.job.width)
        self.table = self._table_for(len(found.ids), text_bytes(found.ids))
        self.table.put(self.job.base + found.epochs, found.ids, found.rows)
        self._read_positions(upto)
        self.table.publish(self.job.base + upto, so_far=times_upto(self.job.log, upto))

    def _read_positions(self, upto: int) -> None:
        for a, b, c, d in positions_at(self.job.log, upto, self.job.sources).tolist():
            self._positions[a, b] = c, self.job.base + d
        self._set_positions()

    def _set_positions(self) -> None:
        self.table.set_positions(self._position_rows())

    def _position_rows(self) -> np.ndarray:
        rows = [[*key, *value] for key, value in sorted(self._positions.items())]
        return np.array(rows, np.int64).reshape(-1, 4)

    def _make_room(self, ids: int, text: int) -> None:
        """Go on with a larger table if these ids may not fit; readers follow by themselves."""
        if self.table.has_room(ids, text):
            return
        former = self.table
        try:
            known, found, _ = former.content()
        except HistoryTooShortError:  # an epoch that a killed server left half applied, larger than the ring
            self._begin_anew()
            self._make_room(ids, text)
        else:
            heap = int(former.mem[T_HEAP_USED])
            larger = self._table_for(int(former.mem[T_LIVE]) + ids, heap + text)
            larger.put(found.own, known, found.rows)
            self._keep_more(former, larger)
            larger.set_positions(self._position_rows())
            larger.publish(found.epoch)
            larger.take_times(former)
            self._replace(larger)

    def _keep_more(self, former: TableWriter, larger: TableWriter) -> None:
        """Copy data other than rows into a larger table."""

    def _begin_anew(self) -> None:
        """Go on with a table of what base and change log have; tails may bring it on to what readers have seen."""
        former = self.table
        self._floor = self.seen
        self._load()
        for part in self._parts:
            part.rewind()
        self._discard(former)
        self._offer()

    def _replace(self, table: TableWriter) -> None:
        """Go on with another table of the same epoch; one that can't be shown is none."""
        former, self.table = self.table, table
        try:
            self._offer()
        except OSError:
            self.table = former
            self._drop(table)
            raise
        self._discard(former)

    def _offer(self) -> None:
        """Have readers take the table, once it is as far as what they may have seen."""
        if self.table is self._shown or self.is_behind:
            return
        if self.job.generation is not None:
            self.note(self.job.generation)
        self._beat_of(self.table, time.monotonic())
        place.show(self.job, self.tables, self.table)
        former, self._shown = self._shown, self.table
        if former is not None:
            former.supersede()

    def _discard(self, former: TableWriter) -> None:
        """Remove a former table that nobody has ever got."""
        if former not in (self._shown, self.table):
            self._drop(former)

    def _drop(self, table: TableWriter) -> None:
        if place.read_table_file(self.tables) != table.path:
            table.path.unlink(missing_ok=True)

    def _table_for(self, ids: int, text: int) -> TableWriter:
        shape = TableShape.of(self.job.width, self.job.strings, 2 * ids, 2 * text, self._history_bytes)
        return place.new_table(self.job, self.tables, shape)

    def _beat(self, now: float) -> None:
        self._beat_of(self._shown or self.table, now)

    def _beat_of(self, table: TableWriter, now: float) -> None:
        """Say that the server lives, and as of when the table has all that the job has published."""
        beats = self._beats()
        if now - self._ended_at >= _ENDED_S:
            self._ended_at, self.ended = now, self._how_ended()
            self._is_gone = not any(beats) and self._knows_log and self.job.is_over()
        heard_us, epoch = self._heard(beats)
        if table.epoch - self.job.base >= self._heard_epoch:  # what the parts had at the last beat
            self._source_us = max(self._source_us, heard_us)
        self._heard_epoch = epoch
        failures = max(0, min(sum(one.failures for one in beats if one is not None), _MANY))
        self._beat_at = now
        table.beat(self._source_us, failures, self.ended)

    def _heard(self, beats: list[Beat | None]) -> tuple[int, int]:
        """Since when no part has been silent (us), and the epoch that all of them had then.

        Parts on other machines say nothing here. Where this machine sees the change log, that stands for them, until it
        is known that nobody works on the job any more.
        """
        heard = [(0, 0) if one is None else (one.beat_us, one.epoch) for one in beats if one or not self._knows_log]
        if not heard:
            return 0 if self._is_gone else time.time_ns() // 1000, self._logged
        return min(at_us for at_us, _ in heard), min(epoch for _, epoch in heard)

    def _beats(self) -> list[Beat | None]:
        """Return the last heartbeat of each part."""
        return self.job.beats()

    def _how_ended(self) -> int:
        """Return the job's end, if the table is final because the job is done or was stopped."""
        return self.job.how_ended()


def _ids_of(one: TailEpoch, strings: bool) -> Ids:
    if not strings:
        return one.ids
    return Texts.encode([]) if one.text is None else Texts.of(one.ids, one.text)
