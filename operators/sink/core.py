"""The Sink of one part: it puts the rows of an epoch together by kind, hands them to the outputs, and counts them.

An embedding's sink part is its key modulo the number of parts, so a vertex that dies in one part and comes back in
another keeps its order. Everything that is written is a function of the epochs alone: a restore loads the tables as of
a marker, when nothing is buffered, and the replay writes the same again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freshet.operators.control import (
    ACCEPTED,
    ARRIVAL_MS,
    EVENTS_IN_EPOCH,
    FLAGS,
    LAST,
    LAST_ARRIVAL_MS,
    REJECTED,
    REPLAY,
    VERTICES,
    event_ts_of,
    is_marker,
)
from freshet.operators.core import Core
from freshet.operators.epochs.flush_intervals import monotonic_ms
from freshet.operators.outcome import Message
from freshet.operators.sink import output as at
from freshet.operators.sink.dealing import control_of, deal
from freshet.operators.sink.epoch_rows import EpochRows, wall_ms
from freshet.operators.sink.kind_outputs import FIRST_ROW, SCALARS, Brought, KindOutputs, blocks_by_kind
from freshet.operators.sink.output import Output
from freshet.operators.telemetry.elapsed import Elapsed
from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.latency import Latencies
from freshet.operators.telemetry.level import AnyLevel, joint
from freshet.operators.telemetry.recent import Recent
from freshet.operators.telemetry.status_file import LAST_STATUS, StatusFile
from freshet.operators.threads import weakly
from freshet.state.codec import Block
from freshet.state.table import DIRTY, TableSet

_LATENCIES = {"applied": "applied", "freshness": "readable"}  # by the name in metrics


class Sink(Core):
    """Collects the rows of each epoch and hands them to the outputs of their kind.

    Invariant: an epoch has at most one row per kind and id.
    """

    def __init__(
        self,
        part: int,
        out_folder: str | Path,
        kinds: Sequence[KindOutputs],
        id_kind: str,
        clock_ms: Callable[[], float] = wall_ms,
    ) -> None:
        """`kinds` are those that the model returns; `id_kind` is "int" or "string"."""
        out = Path(out_folder)
        self.part, self.kinds, self._name = part, kinds, f"sink {part}"
        self.tables = TableSet()
        self._scalars = self.tables.add("scalars", "i8")
        self._scalars.reserve(SCALARS)
        # another clock is a test's, which is not set
        elapsed = Elapsed(clock_ms(), monotonic_ms) if clock_ms is wall_ms else None
        self._latencies, self._recent = Latencies(self.tables, elapsed), Recent()
        for kind in kinds:
            kind.keep(self.tables, self._scalars, id_kind)
        self._clock_ms = clock_ms
        self._status = StatusFile(out, f"sink-{part}")
        self._status_lock, self._status_behind, self._shown_visible = threading.Lock(), False, 0
        self.levels: dict[str, AnyLevel] = joint(kind.levels for kind in kinds)
        self._ended = False
        self._restored_ms = 0.0  # no time before it is this attempt's
        self._streamed_until_ms: float | None = None  # of this attempt, once it has taken an event
        for kind in kinds:  # last: from now on `_on_idle` may be called
            kind.begin(self._latencies, clock_ms, weakly(self._on_idle))

    @property
    def outputs(self) -> list[Output]:
        """The outputs of all kinds."""
        return [output for kind in self.kinds for output in kind.outputs]

    @property
    def outlets(self) -> list[dict[str, Output]]:
        """The outputs whose progress keyed state keeps, by the prefix of their kind; of this one part."""
        return [{kind.prefix: one for kind in self.kinds for one in kind.outputs if one.leaves_by_epoch}]

    def after_restore(self) -> None:
        """Forget what an epoch before the restore left behind."""
        for output in self.outputs:
            output.clear()
        self._restored_ms, self._streamed_until_ms = self._clock_ms(), None
        self._recent.begin(self._restored_ms / 1e3, self._latencies.counts("readable"))

    def apply(self, epoch: int, blocks: list[Block], now_ms: float | None = None) -> list[Message]:
        """Take over the rows of an epoch; `now_ms` is read from the clock where it is not given.

        Raises:
            BadEpochError: blocks contradict each other, or an id has two rows.
            ChangeLogError: an earlier file could not be written.
        """
        self.check()
        control = control_of(self._name, epoch, blocks)
        brought = []
        for kind, some in zip(self.kinds, blocks_by_kind(blocks, self.kinds), strict=True):
            (dealt,) = deal(self._name, epoch, some, kind.width, 1)
            brought.append(Brought(dealt, some))
        return self.take(epoch, brought, control, now_ms)

    def check(self) -> None:
        """See whether an output failed in the background.

        Raises: ChangeLogError when a file could not be written.
        """
        for output in self.outputs:
            output.check()

    def take(
        self, epoch: int, brought: Sequence[Brought], control: np.ndarray, now_ms: float | None = None
    ) -> list[Message]:
        """Apply an epoch to this part, given its rows, string ids and positions by kind."""
        at_ms = self._clock_ms() if now_ms is None else now_ms
        every = [kind.rows(epoch, given) for kind, given in zip(self.kinds, brought, strict=True)]
        for rows in every:
            rows.applied_ms = at_ms
            rows.last_arrival_ms, rows.event_ts = int(control[LAST_ARRIVAL_MS]) or None, event_ts_of(control)
        self._time(every, control, at_ms)
        self._count(epoch, sum(rows.size for rows in every), control)
        marks = is_marker(control)
        if marks:
            self._latencies.settle()
        messages: list[Message] = []
        for kind, given, rows in zip(self.kinds, brought, every, strict=True):
            messages += kind.take(given.dealt.keys, rows, control)
        for output in self.outputs if marks else ():
            output.pass_marker()
        self._ended = bool(control[FLAGS] & LAST)
        if self._ended:
            at_ms = self._clock_ms() if now_ms is None else now_ms
        self._count_time(epoch, control, at_ms)
        self._status_behind = True
        if self._ended or self._status.is_due(at_ms):
            self.write_status(at_ms)
        return messages

    def close(self, write: bool = True) -> None:
        """Close all outputs; with `write=False` (after a failure) without what they hold."""
        for output in self.outputs:
            output.close(write)
        if write and not self._ended:
            self._ended = True
            self.write_status(self._clock_ms())

    def _on_idle(self) -> None:
        """Report in the status what was published when the stream paused; on a writer's thread."""
        behind = self._status_behind or self._shown_visible != self._figures()["visible"]
        if behind and self._status.is_due(now_ms := self._clock_ms()):
            self.write_status(now_ms)

    def write_status(self, now_ms: float) -> None:
        """Write how far this part is, and what of it is visible."""
        with self._status_lock:
            self._status_behind, self._shown_visible = False, self._figures()["visible"]
            self._status.write(self.status(now_ms), now_ms)

    def _figures(self) -> dict[str, Any]:
        """Return the figures of all kinds together: `visible` is the last epoch that all show."""
        every = [kind.figures() for kind in self.kinds]
        counts = {name: sum(one[name] for one in every) for name in ("tail_failures", "files")}
        return {"visible": min(one["visible"] for one in every), **counts}

    @property
    def figures(self) -> Figures:
        """Rows of the change log without epoch 0, and latencies of epochs, since the job began."""
        latencies = {f"{name}_seconds": self._latencies.buckets(kind) for name, kind in _LATENCIES.items()}
        return Figures({"rows_changed": int(self._scalars.data[at.ROWS])}, latencies=latencies)

    def status(self, now_ms: float) -> dict[str, Any]:
        """The figures of this part, counted since the job began: without epoch 0, and latencies without replays."""
        scalars, figures = self._scalars.data, self._figures()
        return {
            "part": self.part,
            "epoch": int(scalars[at.EPOCH]),
            "visible": figures["visible"],
            "rows": int(scalars[at.ROWS]),
            "events": int(scalars[at.EVENTS]),
            "rejected": int(scalars[at.REJECTED]),
            "vertices": int(scalars[at.VERTICES]),
            "files": figures["files"],
            "tail_failures": figures["tail_failures"],
            "seconds": round(float(scalars[at.STREAMED_MS]) / 1e3, 3),
            **self._latencies.figures(),
            **self._recent.figures(now_ms / 1e3, int(scalars[at.EVENTS]), self._latencies.counts("readable")),
            LAST_STATUS: self._ended,
            "time": now_ms / 1e3,
        }

    def _count(self, epoch: int, rows: int, control: np.ndarray) -> None:
        if self._scalars.view.flags.item(0) != DIRTY:  # one page: seen in a tenth of the time that a kernel takes
            self._scalars.touch_rows(FIRST_ROW)
        scalars = self._scalars.data
        scalars[at.EPOCH] = epoch
        scalars[at.VERTICES] = control[VERTICES]
        scalars[at.REJECTED] = control[REJECTED]
        scalars[at.EVENTS] = control[REJECTED] + control[ACCEPTED]
        scalars[at.ROWS] += rows if epoch > 0 else 0

    def _count_time(self, epoch: int, control: np.ndarray, now_ms: float) -> None:
        """Count the time from the attempt's first event to this epoch's end, but none after the last event's epoch.

        An attempt that was killed counts up to the state that the next one begins with, which does the rest again.
        """
        begin_ms, arrival_ms = self._streamed_until_ms, int(control[ARRIVAL_MS])
        if arrival_ms > 0 and begin_ms is None:
            begin_ms = max(arrival_ms, self._restored_ms)
        if epoch > 0 and begin_ms is not None and (arrival_ms > 0 or self._ended):
            self._scalars.data[at.STREAMED_MS] += max(0.0, self._latencies.since_ms(begin_ms, now_ms) or 0.0)
            self._streamed_until_ms = now_ms

    def _time(self, every: Sequence[EpochRows], control: np.ndarray, now_ms: float) -> None:
        """Count the epoch's latency, from the arrival of its first event at the Parser; that of a replay does not.

        Each kind counts by itself when its rows are readable.
        """
        if not int(control[FLAGS]) & REPLAY and int(control[EVENTS_IN_EPOCH]) > 0 and int(control[ARRIVAL_MS]) > 0:
            for rows in every:
                rows.arrived_ms = int(control[ARRIVAL_MS])
            self._latencies.applied(int(control[ARRIVAL_MS]), now_ms)
