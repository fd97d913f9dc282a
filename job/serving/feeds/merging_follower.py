"""Keeps a table by tails that lie on several machines: those of its own, and those that other servers send.

What no tail that is reached has comes from the change log, where this machine sees it, else from the table of a server
that is further.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from freshet.job.console import say
from freshet.job.serving.feeds.fed_job import FedJob, FedServer, FedServers
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.feeds.peer_tails import PeerTails, newest_beat
from freshet.job.serving.feeds.table_flow import TableChange, TableFlow
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import TailNote
from freshet.operators.sink.tail.reader import Beat, TailEpoch
from freshet.state.served.ids import Ids, Texts, frozen
from freshet.state.served.layout import HISTORY_BYTES, RUNS
from freshet.state.served.times import NOTHING_KNOWN, Moment

_GAP_S = 1.0  # without an epoch, while another server is further, until its table is asked
_LACK_S = 3.0  # until a line says what is lacking
_LOOK_S, _POLL_S = 0.25, 0.01
_SILENT_US = 2_000_000  # parts of a job that runs say something several times a second
_NAMED_MAX = 3  # of parts, and of servers that are not reached


class _MergedTails(PartTails):
    """A part's epochs by this machine's tails or by what others have sent, whichever has them."""

    def __init__(self, job: ServedJob, part: int, peers: PeerTails) -> None:
        super().__init__(job.tails, part, job.word)
        self._number, self._peers = part, peers

    def get(self, wanted: int) -> TailEpoch | None:
        """The part's rows of an epoch; None while nobody has it."""
        return super().get(wanted) or self._peers.get(self._number, wanted)

    def after(self, wanted: int) -> TailEpoch | None:
        """The part's earliest epoch from `wanted` on that somebody has."""
        found = [one for one in (super().after(wanted), self._peers.after(self._number, wanted)) if one is not None]
        return min(found, key=lambda one: one.epoch, default=None)


class MergingFollower(Follower):
    """The one writer of a table whose epochs come from tails here and elsewhere.

    Invariant: an epoch is applied when it is there of all parts, or as part of a table that is further; never back. A
    server's change up to an epoch that the table has passed is left out; the next one has all that changed since.
    """

    origin = "tails and other servers"

    def __init__(
        self,
        job: ServedJob,
        tables: Path,
        sources: FedServers,
        until: Callable[[], bool],
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        super().__init__(job, tables, history_bytes)
        self._until, self._flow = until, TableFlow(sources, job)
        self._source_us = 0
        self._peers = PeerTails(sources, job)
        self._parts: list[PartTails] = [_MergedTails(job, part, self._peers) for part in range(job.parts)]
        self._knows_log = not isinstance(job, FedJob)
        self._lacking_since, self._look_at = float("inf"), 0.0
        self._flow_of: FedServer | None = None
        self._nothing_since = float("inf")  # nothing new came

    def start(self, until: Callable[[], bool] = lambda: False) -> None:
        """Ask the other servers, and have a table."""
        self._peers.start()
        super().start(until)
        self._moved_at = time.monotonic()  # tails first, also where the table that was left is far behind

    def step(self) -> bool:
        """Apply the next epoch if it is there; whether it was."""
        self._peers.pass_epoch(self._job_epoch)
        found = super().step()
        if found:
            self._lacking_since = float("inf")
        return found

    def close(self, forget: bool) -> None:
        """Let all servers and tails go; with `forget` the table, too."""
        self._peers.close()
        self._flow.stop()
        super().close(forget)

    def _apply(self, epoch: int, parts: list[TailEpoch]) -> None:
        self._flow.stop()  # tails are quicker than another server's table
        self._flow_of = None
        super()._apply(epoch, parts)

    def _stalled(self, now: float) -> bool:
        """Some tail lacks the next epoch: it may be in the change log, or in another server's table."""
        if self._knows_log and super()._stalled(now):
            return True
        further = self._peers.further()
        if further is None:  # a table that is followed already may stand still
            self._say_what_is_lacking(now)
        if not self._flow.under_way and (further is None or now - self._moved_at < _GAP_S):
            return False
        before, former = self.table.epoch, self._flow_of
        self._flow_from(further)
        if self._flow_of != former:
            say(f"epoch {before + 1} of some part is in no tail that is reached: going on by the table of {further}")
        return self.table.epoch > before

    def _load(self) -> None:
        """Begin with the change log, else with another server's table, else with nothing, if the job began so."""
        if self._knows_log:
            super()._load()
            return
        base = self.job.base
        floor = max(base, self._floor)
        self.table, began = self._table_for(0, 0), time.monotonic()
        self._flow.stop()  # it fits the former table
        self._peers.pass_epoch(floor - 1 - base)
        while self.table.epoch < floor and not (self._until() or self._has_other_job):
            further = self._peers.further()
            if self._flow.under_way or further is not None:
                self._flow_from(further)
            elif floor == base and self.job.begins_empty and all(part.get(1) is not None for part in self._parts):
                self.table.publish(base)
            else:
                if time.monotonic() - began > _LACK_S and not self._is_of_former_job():
                    self._say_once(f"there is no table to begin with: {self._who_could_help()}")
                time.sleep(_POLL_S)

    @property
    def _has_other_job(self) -> bool:
        """True if all other servers that answer are of another job, and this machine does not see the change log."""
        return not self._knows_log and self._peers.are_of_another_job

    def _beat(self, now: float) -> None:
        super()._beat(now)
        self.is_left_behind = self._has_other_job

    def _offer(self) -> None:
        if self.table.epoch >= 0:  # else it could not be begun: the job has gone meanwhile
            super()._offer()

    def _flow_from(self, further: FedServer | None) -> None:
        """Take in the next piece of another server's table; one that stands still gives way to one that is further."""
        now = time.monotonic()
        if further not in (None, self._flow_of) and now - self._nothing_since > _GAP_S:
            self._flow.stop()
        if not self._flow.under_way:
            self._flow_of, self._nothing_since = further, float("inf")
        change = self._flow.next(further)
        if change is not None:
            self._take(change)
        elif not self._flow.under_way:  # it has failed
            self._beat(time.monotonic())

    def _take(self, change: TableChange) -> None:
        before, behind_us = self.table.epoch, change.metadata["behind_us"]
        if behind_us is not None:
            self._source_us = max(self._source_us, time.time_ns() // 1000 - behind_us)
        if change.epoch > before:
            self._take_rows(change)
        self._offer()
        self._beat(time.monotonic())
        self._nothing_since = float("inf") if self.table.epoch > before else min(self._nothing_since, time.monotonic())

    def _take_rows(self, change: TableChange) -> None:
        if self.table.epoch < 0:  # nobody reads it yet
            self.table = self._table_for(*change.room)
        else:
            before = self.table.epoch
            self._make_room(*change.room)
            if self.table.epoch != before:  # it was begun anew: it goes on from where it stands
                return
        missing = [self._missing([ids for _, ids, _ in change.put])] if change.whole else []
        for ids in change.dead + missing:
            self.table.remove(change.epoch, ids)
        for own, ids, rows in change.put:
            self.table.put(own, ids, rows)
        self._positions = {(a, b): (c, d) for a, b, c, d in change.metadata["positions"]}
        self._set_positions()
        self._publish(change.epoch, change.metadata)

    def _publish(self, epoch: int, metadata: dict[str, Any]) -> None:
        """Show an epoch with what the other server knows of its times, and of those of the epochs that came with it."""
        known = {one: Moment(*times) for one, *times in metadata["times"] if one <= epoch}
        self.table.note_epochs(known)
        so_far = Moment(metadata["arrived_us"] // 1000 or None, metadata["event_ts"])
        self.table.publish(epoch, metadata["published_us"], known.get(epoch, NOTHING_KNOWN), so_far)

    def _missing(self, known: list[Ids]) -> Ids:
        """The ids of the table that are none of these."""
        if self.table.epoch < 0:
            return Texts.encode([]) if self.job.strings else frozen(np.empty(0, np.int64))
        ours = self.table.living()
        if isinstance(ours, Texts):
            there = {name for one in known if isinstance(one, Texts) for name in one.decode()}
            return Texts.encode([name for name in ours.decode() if name not in there])
        return frozen(ours[~np.isin(ours, np.concatenate([frozen(np.empty(0, np.int64)), *known]))])

    def _say_what_is_lacking(self, now: float) -> None:
        """Say why readers get nothing newer, where the job has gone on and it lasts."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        if self._is_of_former_job():
            return
        wanted = self._job_epoch + 1
        later = [part.after(wanted) for part in self._parts]
        if all(one is None for one in later):
            self._lacking_since = float("inf")
            return
        self._lacking_since = min(self._lacking_since, now)
        if now - self._lacking_since < _LACK_S:
            return
        lacking = [part for part, one in enumerate(later) if one is None or one.epoch > wanted]
        if lacking:
            some = ", ".join(map(str, lacking[:_NAMED_MAX])) + (" and others" if len(lacking) > _NAMED_MAX else "")
            which = f"epoch {self.job.base + wanted} of part{'s' * (len(lacking) > 1)} {some}"
            self._say_once(f"{which} is in no tail that is reached: {self._who_could_help()}")

    def _is_of_former_job(self) -> bool:
        """Return whether this machine's tails are of another job by now, and report it."""
        noted = TailNote.read(self.job.tails)
        if noted is None or noted["job_id"] == self.job.job_id:
            return False
        which = f"{self.job.tails} holds tails of the job {noted['job_id']} now"
        self._say_once(f"{which}, and this server is of the job {self.job.job_id}: start it again")
        return True

    def _who_could_help(self) -> str:
        unheard = "; ".join(self._peers.unheard()[:_NAMED_MAX])
        wanted = "name a server beside each TaskManager, or one that sees the change log (--tables O/tables), in --from"
        return f"no other server is further{f' ({unheard})' if unheard else ''}; {wanted}"

    def _beats(self) -> list[Beat | None]:
        """Return the last heartbeat of each part, here or elsewhere."""
        return [newest_beat(both) for both in zip(self.job.beats(), self._peers.beats(), strict=True)]

    def _how_ended(self) -> int:
        """Return the job's end, from its folder, or from another server while no part sends heartbeats.

        Servers that heard it of each other would say so for good, also of a job that was resumed.
        """
        if how := self.job.how_ended():
            return how
        heard_us = max((one.beat_us for one in self._beats() if one is not None), default=0)
        return self._peers.how_ended() if time.time_ns() // 1000 - heard_us > _SILENT_US else RUNS
