"""The answers of a server to what if: a thread follows the graph, and requests are answered between its epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from freshet.errors import FreshetError
from freshet.gnn.any_plan import AnyPlan
from freshet.job.console import say
from freshet.job.errors import JobFailed
from freshet.job.serving.bounds.forms import FormError
from freshet.job.serving.protocol.errors import NotReadyError, NotYetError, TooFarError
from freshet.job.serving.tables.hypotheses import ComingAnswers, Tried
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.served_job import ServedJob
from freshet.job.units import readable
from freshet.job.what_if.followed_graph import FollowedGraph
from freshet.job.what_if.inner_tables import InnerTables, as_graph_ids
from freshet.job.what_if.tried_events import TriedEvents
from freshet.job.what_if.turns import GraphTurns
from freshet.operators.factory import load_plan
from freshet.operators.what_if.core import ReachError, RefusalError, WhatIf
from freshet.partitioner.ids import Ids
from freshet.state.served.ids import Ids as ServedIds
from freshet.state.served.mapped import Found, HistoryTooShortError

_POLL_S = 0.02
_TURN_S = 0.0005
_AGAIN_S = 5.0
_SHOW_S = 10.0
_REFRESHED = 1 << 12  # in-edges of the vertices whose rows are computed in a turn, while nobody asks
_REST = 4.0  # times as long as a turn takes it rests, once all rows were there


def open_what_if(
    job: ServedJob,
    tables: Sequence[CurrentTable],
    begin: str,
    config: Path | None,
    coming: ComingAnswers,
    inner: InnerTables | None = None,
) -> WhatIfEngine:
    """Open a job's graph from where that begins, beside its tables, and have those be answered that wait for it.

    `inner`: see WhatIfEngine.

    Raises: InputError where the job's graph can't be read.
    """

    def opened() -> FollowedGraph:
        return FollowedGraph(job.log.out, PartTails(job.tails, 0, job.word), begin, config)

    engine = WhatIfEngine(opened(), lambda: min(one.served().table.epoch for one in tables), opened, inner)
    coming.come(engine)
    return engine


class WhatIfEngine:
    """Answers for all kinds of a job's vertices; safe for threads."""

    def __init__(
        self,
        graph: FollowedGraph,
        newest: Callable[[], int],
        again: Callable[[], FollowedGraph] | None = None,
        inner: InnerTables | None = None,
    ) -> None:
        """`newest`: the epoch that readers of the table have; `again`: opens the graph once more, after an outage.

        `inner`: the tables of the last inner layer, of a job whose embeddings are computed here.
        """
        self._newest, self._again, self._inner = newest, again, inner
        self._name = "what if" if inner is None else "embeddings"  # of what is said of it
        self._plan: AnyPlan = load_plan(graph.settings.model)
        self._begin(graph)
        self.turns, self._closed = GraphTurns(), threading.Event()
        self._asking = list[None]()  # an entry for each request: threads may append and pop at once
        self._failure: FreshetError | None = None
        self._thread = threading.Thread(target=self._follow, name="freshet-what-if", daemon=True)

    def _begin(self, graph: FollowedGraph) -> None:
        """Answer of this graph from now on."""
        self._graph, live = graph, graph.graph.live
        self._what = WhatIf(live, self._plan, None if self._inner is None else self._inner_rows)
        self._reader = TriedEvents(live, self._plan)

    def start(self) -> None:
        """Follow the graph, on a thread."""
        self._thread.start()

    def close(self) -> None:
        """End; no answers follow."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._graph.close()

    def tried(
        self, items: Sequence[Mapping[str, Any]], kind: str, min_epoch: int, timeout_s: float, most: int
    ) -> Tried:
        """Return rows after what each item tries, each by itself; see `Tried`.

        Others ask between two vertices, of the same epoch: who needs a later one waits until all are answered.

        Raises: FormError, TooFarError, NotYetError, NotReadyError.
        """
        deadline = time.monotonic() + timeout_s
        epoch = max(min_epoch, self._newest())
        with self._turn(epoch, timeout_s):
            self._bring_on(epoch if self.turns.is_kept else max(epoch, self._newest()), deadline)
            return self._answer(items, kind, most)

    def embedded(self, kind: str, ids: ServedIds, upto: int, timeout_s: float) -> Found:
        """Return the embeddings of vertices of a kind, at the newest epoch or at `upto`; see TableReader.

        Raises: HistoryTooShortError, NotYetError, NotReadyError.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            epoch = min(self._newest(), upto)
            with self._turn(epoch, max(0.0, deadline - time.monotonic())):
                self._bring_on(epoch if self.turns.is_kept else min(max(epoch, self._newest()), upto), deadline)
                if self._graph.epoch > upto:
                    msg = f"the graph is at epoch {self._graph.epoch:,}, past {upto:,}"
                    raise HistoryTooShortError(msg)
                try:
                    found = self._what.now(self._code(kind), as_graph_ids(ids))
                except HistoryTooShortError:  # the graph was behind the tables for too long
                    if time.monotonic() >= deadline or self._graph.epoch == upto:
                        raise
                    continue
                own, rows = np.full(len(ids), -1), np.empty((len(ids), found.rows.shape[1]), np.float32)
                own[found.there], rows[found.there] = self._graph.epoch, found.rows
                return Found(self._graph.epoch, own, rows)

    def _inner_rows(self, kind: int, ids: Ids) -> np.ndarray:
        assert self._inner is not None
        kinds = self._plan.features.kinds
        return self._inner.rows("" if kinds is None else kinds.names[kind], ids, self._graph.epoch)

    def _code(self, kind: str) -> int:
        kinds = self._plan.features.kinds
        return 0 if kinds is None or not kind else kinds.kind_codes[kind]

    @contextmanager
    def _turn(self, epoch: int, timeout_s: float) -> Iterator[None]:
        """Have the graph for a request, which can be brought on to the epoch.

        Raises: NotYetError where others have it for longer than that.
        """
        self._asking.append(None)
        try:
            if not self.turns.begin(lambda: self._graph.epoch >= epoch, timeout_s):
                why = f"after {timeout_s:g} s the graph is still read, or others ask"
                msg = f"{self._name}: {why}; give a longer timeout"
                raise NotYetError(msg)
            try:
                yield
            finally:
                self.turns.end()
        finally:
            self._asking.pop()

    def _bring_on(self, epoch: int, deadline: float) -> None:
        while self._graph.epoch < epoch:
            if self._failure is not None:
                msg = f"{self._name}: {self._failure}"
                raise NotReadyError(msg) from self._failure
            if not self._moved_to(epoch) and self._failure is None:
                if time.monotonic() >= deadline:
                    msg = f"{self._name}: expected epoch {epoch:,}, its graph is at {self._graph.epoch:,}"
                    raise NotYetError(msg)
                time.sleep(_POLL_S)

    def _moved_to(self, epoch: int) -> bool:
        """Bring the graph on as far as it goes; an error stays, for the graph may be between two epochs then."""
        try:
            return self._graph.bring_on(epoch, lambda line: None)
        except NotReadyError:  # another table takes the place of this one
            raise
        except FreshetError as error:
            self._failure = error
            until = "until the graph can be read again" if self._can_begin_again else "from now on"
            say(f"{self._name}: {error}; it is not answered {until}")
            return False

    @property
    def _can_begin_again(self) -> bool:
        """Return whether what failed may go: brokers that do not answer."""
        return self._again is not None and isinstance(self._failure, JobFailed)

    def _begin_again(self) -> None:
        """Read the graph again, from where it began; it stays as it is where that fails, too."""
        assert self._again is not None
        try:
            graph = self._again()
        except FreshetError:
            return
        with self.turns.turn():
            self._graph.close()
            self._begin(graph)
            self._failure = None

    def _answer(self, items: Sequence[Mapping[str, Any]], kind: str, most: int) -> Tried:
        kinds, code = self._plan.features.kinds, self._code(kind)
        ids, rows, of, unknown = list[Any](), list[np.ndarray](), list[int](), list[Any]()
        for number, item in enumerate(items):
            if number:
                self.turns.between()
            where = f"vertices[{number}]." if len(items) > 1 else ""
            vertex, events = self._reader.of(item, kind if kinds is not None else "", where)
            also = list(item.get("also") or ())
            asked = [vertex, *also]
            try:
                found = self._what.ask(events, code, self._reader.ids(asked, f"{where}also"), most)
            except RefusalError as error:
                msg = f"{where}in_edges, out_edges: {error}"
                raise FormError(msg) from None
            except ReachError as error:
                msg = f"{where}max_touched: {error}"
                raise TooFarError(msg) from None
            there = found.there.tolist()
            named = [item.get("id"), *also]
            ids += [one for one, is_there in zip(named, there, strict=True) if is_there]
            unknown += [one for one, is_there in zip(named, there, strict=True) if not is_there]
            of += [number] * len(found.rows)
            rows.append(found.rows)
        return Tried(self._graph.epoch, ids, np.concatenate(rows), np.array(of, np.int64), unknown)

    def _follow(self) -> None:
        """Bring the graph on, and compute rows that are not known, while nobody asks."""
        with self.turns.turn():
            self._what.warm_up()
        began = shown = time.monotonic()
        is_whole, rests_until = False, 0.0
        while not self._closed.is_set() and (self._failure is None or self._can_begin_again):
            if self._failure is not None:
                self._closed.wait(_AGAIN_S)
                self._begin_again()
                continue
            if self._asking:
                time.sleep(_TURN_S)
                continue
            try:
                with self.turns.turn():
                    newest, turn = self._newest(), time.monotonic()
                    is_idle = not self._moved_to(newest)
                    if is_idle and turn >= rests_until:
                        is_idle = not self._what.refresh(_REFRESHED)
                        rests_until = turn + (1 + _REST) * (time.monotonic() - turn) if is_whole else 0.0
            except NotReadyError:  # another table takes the place of this one
                is_idle, newest = True, -1
            now = time.monotonic()
            if not is_whole and is_idle and self._graph.epoch == newest:
                is_whole = True
                say(f"{self._name}: all rows are there after {now - began:.1f} s, {readable(self._what.nbytes)}")
            elif not is_whole and now - shown > _SHOW_S:
                shown = now
                say(f"{self._name}: the graph is at epoch {self._graph.epoch:,} of {newest:,}")
            if is_idle:
                self._closed.wait(_POLL_S)
