"""`freshet.LiveGraph`: the graph of a job at an epoch, for training beside the job."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from freshet.job.errors import UsageError
from freshet.job.folder.returned_kinds import logs_of
from freshet.job.lifecycle.job_state import at_work
from freshet.job.live.begins import BASE, begin_of, described, graph_of_base, graph_of_saved
from freshet.job.live.graph_arrays import OrderedGraph, arrays_of
from freshet.job.live.long_work import LongWork
from freshet.job.live.saved import save
from freshet.job.options.layers import take_layers
from freshet.job.results.graph_at import GraphAt
from freshet.job.serving.protocol.errors import NotYetError
from freshet.job.serving.tables.change_log_rows import positions_at
from freshet.operators.factory import load_plan
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log_reader import epochs_between
from freshet.operators.sink.log_proof import last_recorded

if TYPE_CHECKING:
    from freshet.gnn.pyg.graph_data import AnyData

_POLL_S = 0.1
_ASK_EVERY_S = 1.0  # whether anybody works on the job


class LiveGraph:
    """The graph of a job at its epochs, for training: read from the job's input, without touching the job.

    A reader begins with a graph that is known and applies the events of each epoch after that, as `O/epochs` counts
    them: by the job's own Parser and rules, so that the graph is exactly the job's. It works while the job runs, after
    it was killed, and after its end, and writes nothing below O. It is a context manager; `close` lets its memory and
    files go.

    Args:
        out: output folder O of the job.
        begin: where to begin. `"base"`: with the snapshot of the job, or with nothing; all of the input since then is
            read again. `"latest"`: with a savepoint that is requested from the job and removed afterwards, as
            `freshet export` does; of a job that does not run, with its last state. A path: with that savepoint of the
            job, or with a folder of `save`.
        model: model folder of the job, if it has moved.
        config: YAML file with properties of Kafka's clients under `kafka:`, and Flink's options under `flink:`.
        layers: modules of your own layers that the model has.

    Raises:
        InputError: there is no such job, or its begin can't be used.
        JobFailed: Flink can't read the savepoint.
    """

    def __init__(
        self,
        out: str | Path,
        begin: str | Path = BASE,
        *,
        model: str | Path | None = None,
        config: str | Path | None = None,
        layers: Sequence[str] = (),
    ) -> None:
        take_layers(layers)
        self.out = Path(out).absolute()
        self._job = described(self.out, _path(model), _path(config))
        self._plan = load_plan(self._job.settings.model)
        self._graph: GraphAt | None = None
        work = Path(tempfile.mkdtemp(prefix="freshet-live-graph-"))
        self._clean_up = weakref.finalize(self, shutil.rmtree, work, ignore_errors=True)
        try:
            self._begin = begin_of(self._job, str(begin), work)
        except BaseException:
            self._clean_up()
            raise
        self.begin_epoch = 0 if self._begin is None else self._begin.reached.epoch

    def at(self, epoch: int | None = None, timeout: float = 60.0) -> AnyData:
        """Return the graph after an epoch as PyTorch Geometric's Data, or HeteroData where kinds have names.

        An epoch before that of the last call is read from the begin again. Vertices are in the order of their ids
        (strings by their bytes), edges in that of their types, targets, sources and keys: the same for every begin.

        Args:
            epoch: the epoch; None: the newest one that `O/epochs` has now.
            timeout: seconds to wait for an epoch that a running job has not written yet.

        Shapes:
            Of the whole: `epoch` int; `positions` {"SOURCE:PARTITION": offset of the first record that is not covered},
            at epoch 0 those of the snapshot. Of vertices, or by kind: `x` (n, features) float32, not there for a kind
            without features; `id` (n,) int64, or n strings (numpy, object); `num_nodes`. Of edges, or by (source, type,
            target) with the mirrors among them: `edge_index` (2, e) int64 as messages flow, of an undirected job both
            ways; `edge_weight` (e,) float32, 1 where events say none; `edge_attr` (e, width) float32 where the job
            keeps attributes. Without kinds `edge_type` (e,) int64 where the model has types, in its order.

        Raises:
            NotYetError: the epoch was not there in time; at once if nobody works on the job.
            InputError: the epoch is before the begin, or the sources no longer have what the job read.
            JobFailed: the brokers do not answer.
        """
        from freshet.gnn.pyg.graph_data import graph_data

        ordered, at, kinds = self.arrays(epoch, timeout), self.epoch, self._plan.features.kinds
        more = {"epoch": at, "positions": self.positions()}
        return graph_data(ordered.ids, ordered.graph, kinds, ordered.attr, ordered.etype, **more)

    def arrays(self, epoch: int | None = None, timeout: float = 60.0) -> OrderedGraph:
        """Return the same graph as arrays of numpy; torch is not needed. See `at`."""
        wanted = self._await(epoch, timeout)
        if wanted < self.begin_epoch:
            msg = (
                f"epoch {wanted:,} is before epoch {self.begin_epoch:,}, where this reader of {self.out} begins; give "
                f"begin={BASE!r} to read from the job's begin on"
            )
            raise UsageError(msg)
        if self._graph is None or wanted < self._graph.epoch:
            self._restart()
        graph = self._graph
        assert graph is not None
        epochs, positions = epochs_between(self._log, graph.epoch, wanted)
        if len(epochs) < wanted - graph.epoch:
            missing = np.setdiff1d(np.arange(graph.epoch + 1, wanted + 1), epochs)[0]
            msg = f"{self.out}: epochs/ does not have epoch {missing:,}; put its files back"
            raise UsageError(msg)
        try:
            with LongWork("freshet live graph") as work:
                graph.bring_to(wanted, positions, work.report)
        except BaseException:
            self._forget()  # it may be between two epochs
            raise
        finally:
            graph.pause()
        return arrays_of(graph.live, self._plan)

    @property
    def epoch(self) -> int:
        """The epoch of the last call, at first that of the begin."""
        return self.begin_epoch if self._graph is None else self._graph.epoch

    @property
    def events(self) -> int:
        """Number of events that were applied since the reader began, or began again."""
        return 0 if self._graph is None else self._graph.events

    def newest(self) -> int:
        """Return the newest epoch that `O/epochs` has, -1 before the first."""
        return min(map(last_recorded, logs_of(self.out)))

    def positions(self) -> dict[str, int]:
        """Return the positions of the input after the epoch of the last call, as `at` has them."""
        names = self._job.settings.sources
        found = positions_at(self._log, self.epoch, names).tolist()
        return {f"{names[source]}:{partition}": following for source, partition, following, _ in sorted(found)}

    def save(self, folder: str | Path) -> None:
        """Save the graph of the last call in a folder, from which `LiveGraph(O, begin=folder)` goes on.

        It takes the place of what was saved there before, in one step: after a kill the folder has the former or this
        one. It goes with O, whose sources and settings it needs.

        Raises: InputError for a folder that has other files, or one below O.
        """
        folder = Path(folder).absolute()
        if folder.resolve().is_relative_to(self.out.resolve()):
            msg = f"{folder}: expected a folder outside of {self.out}, which is the job's"
            raise UsageError(msg)
        if self._graph is None:
            self._restart()
        assert self._graph is not None
        save(folder, self._job.settings.job_id, self._graph.live, self._graph.reached)

    def close(self) -> None:
        """Let go of memory and of files of this reader; no calls can follow."""
        self._forget()
        self._clean_up()

    def __enter__(self) -> LiveGraph:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def _log(self) -> LogFolders:
        return logs_of(self.out)[0]

    def _restart(self) -> None:
        """Go back to the begin."""
        self._forget()
        self._graph = graph_of_base(self._job) if self._begin is None else graph_of_saved(self._job, self._begin)

    def _forget(self) -> None:
        if self._graph is not None:
            self._graph.live.close()
        self._graph = None

    def _await(self, epoch: int | None, timeout: float) -> int:
        """Return the epoch once it is visible.

        Raises: NotYetError.
        """
        deadline = time.monotonic() + timeout
        asked_at, is_over = -_ASK_EVERY_S, False
        while True:
            newest = self.newest()
            if newest >= (max(0, self.begin_epoch) if epoch is None else epoch):
                return newest if epoch is None else epoch
            if is_over or time.monotonic() >= deadline:
                what = "an epoch" if epoch is None else f"epoch {epoch:,}"
                why = "nobody works on the job" if is_over else f"not within {timeout:g} s"
                msg = f"{self.out}: expected {what}, the newest is {newest:,}: {why}"
                raise NotYetError(msg)
            if time.monotonic() - asked_at >= _ASK_EVERY_S:
                asked_at, is_over = time.monotonic(), at_work(self.out) is None
                continue  # it may have written its last epoch before
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)
