"""Answers of "what if": the rows that a job would have after a few events more, without the job.

The graph of a job is followed epoch by epoch (`LiveState`). Rows of inner layers are computed when they are first
needed, and kept until an epoch may have changed them, so an answer costs what its events change. The events are
applied to the graph by the job's own rules, and taken back by others; nobody sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.operators.live_graph import LiveState
from freshet.operators.what_if.first_rows import FirstRows
from freshet.operators.what_if.known_rows import KnownRows
from freshet.operators.what_if.layer_blocks import LayerBlocks
from freshet.operators.what_if.reach import LayerReach, reached
from freshet.operators.what_if.undoing import ends_of, undoing
from freshet.partitioner.events import Events
from freshet.partitioner.ids import Ids
from freshet.partitioner.inspection import IN, Touched
from freshet.partitioner.net_change import EpochChange
from freshet.schema import EdgeValues

EDGES_AT_ONCE = 1 << 18
"""In-edges of the vertices whose rows are computed together: their messages are in memory at the same time."""


InnerRows = Callable[[int, Ids], np.ndarray]
"""Rows of the last inner layer, of vertices of a kind at the graph's epoch, that others have computed."""


class ReachError(ValueError):
    """Events that reach more vertices than are to be computed again."""

    def __init__(self, reached: int, most: int) -> None:
        """`reached`: vertices by layer together, as far as they were followed."""
        self.reached = reached
        super().__init__(f"the events reach {reached:,} vertices in inner layers, expected at most {most:,}")


class RefusalError(ValueError):
    """An event that the job would reject."""


class WhatIfRows(NamedTuple):
    """Rows of the last layer after events that were tried.

    Shapes: there (n,) bool, which of the asked vertices there are then; rows (k, width) float32, of these alone;
    `redone`: how many rows of inner layers the events have changed and were computed
    """

    there: np.ndarray
    rows: np.ndarray
    redone: int


class WhatIf:
    """Answers what rows of a job's graph would be; follows what is applied to the graph from now on."""

    def __init__(self, live: LiveState, plan: AnyPlan, inner_rows: InnerRows | None = None) -> None:
        """`live` is the graph; there is one `WhatIf` of it. `inner_rows` None: all rows are computed here."""
        self._live, self._plan, self._core = live, plan, live.core
        inner = plan.layers[:-1]
        self._reach = [LayerReach.of(layer) for layer in inner]
        self._widths = [[0 if one is None else one.out_width for one in layer.kinds] for layer in inner]
        self._known = [KnownRows(widths) for widths in self._widths]
        self._inner_rows = inner_rows
        self._first = FirstRows(live, getattr(plan, "learned", ()))
        self._attr = np.zeros((0, plan.features.edge_width), np.float32)
        rules = live.settings.partitioning
        self._blocks = LayerBlocks(plan, self._values_of, out_degrees=rules.out_degrees)
        self._redone = 0
        self._graph = self._core.inspection()
        self._take_attributes()
        live.watch(self._note)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are kept, and of attributes of edges."""
        return self._attr.nbytes + sum(one.nbytes for one in self._known)

    def ask(self, events: Events, kind: int, ids: Ids, most: int) -> WhatIfRows:
        """Return the rows of vertices of a kind, as they would be after these events.

        `most`: how many rows of inner layers the events may change.

        Raises:
            RefusalError: the job would reject an event.
            ReachError: the events reach more than that.
        """
        if not len(events):
            return self.now(kind, ids)
        self._graph = graph = self._core.inspection()
        back = undoing(events, ends_of(events, graph, self._core.features), graph, self._core.features, self._values_of)
        width = self._core.attr_width
        change = self._core.partition(events, tried=True)
        try:
            if change.rejected:
                raise RefusalError(change.rejected[0][1])
            touched = self._taken(change)
            self._first.try_on(self._graph, touched, events.x)
            return self._asked(kind, ids, self._changed_by(touched, most))
        finally:
            self._first.drop()
            self._taken(self._core.partition(back, tried=True))
            self._core.forget_attr_width(width)

    def now(self, kind: int, ids: Ids) -> WhatIfRows:
        """Return the rows of vertices of a kind, as they are."""
        self._graph = self._core.inspection()
        return self._asked(kind, ids, [np.empty(0, np.int64)] * len(self._plan.layers))

    def warm_up(self) -> None:
        """Have kernels be compiled before the first question waits for them."""
        self.now(0, Ids.of(self._live.settings.id_kind, []))

    def _changed_by(self, touched: Touched, most: int) -> list[np.ndarray]:
        count = 0

        def goes_on(_: int, rows: np.ndarray) -> np.ndarray:
            nonlocal count
            count += len(rows)
            if count > most:
                raise ReachError(count, most)
            return rows

        return reached(self._reach, self._graph, touched, goes_on)

    def refresh(self, edges: int) -> bool:
        """Compute some rows of a layer that are not known; False: all are known, or others compute those of the last.

        `edges`: how many in-edges their vertices may have together, if they are several.
        """
        if self._inner_rows is not None:
            return False
        self._graph = self._core.inspection()
        live = self._graph.tables.live_vertices()
        for number, known in enumerate(self._known, 1):
            known.reserve(self._graph.rows)
            if (missing := live[~known.known[live]]).size:
                ends = np.cumsum(self._graph.degree_counts(missing, IN))
                self._complete(number, missing[: max(1, int(np.searchsorted(ends, edges, "right")))])
                return True
        return False

    def _asked(self, kind: int, ids: Ids, changed: list[np.ndarray]) -> WhatIfRows:
        self._redone = 0
        for known in self._known:
            known.reserve(self._graph.rows)
        has_kinds = self._plan.features.kinds is not None
        rows = self._graph.find(ids, np.full(len(ids), kind, np.uint8), has_kinds=has_kinds)
        asked, places = np.unique(rows[rows >= 0], return_inverse=True)
        number = len(self._plan.layers)
        made = np.concatenate(
            [self._made(number, some, changed)[kind] for some in self._pieces(asked)]
            or [self._made(number, asked, changed)[kind]]
        )
        return WhatIfRows(rows >= 0, made[places], self._redone)

    def _made(self, number: int, vertices: np.ndarray, changed: list[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of a layer by kind, computed again."""

        def before(nodes: list[np.ndarray]) -> list[np.ndarray]:
            return self._rows(number - 1, nodes, changed)

        return self._blocks.rows(number, self._graph, vertices, before)

    def _rows(self, number: int, nodes: list[np.ndarray], changed: list[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of an inner layer, or of x_0, by kind: those that have changed are computed again."""
        if number == 0:
            return [self._first.of(self._graph, kind, vertices) for kind, vertices in enumerate(nodes)]
        are = [np.isin(one, changed[number]) for one in nodes]
        again = np.concatenate([one[mask] for one, mask in zip(nodes, are, strict=True)])
        as_before = [one[~mask] for one, mask in zip(nodes, are, strict=True)]
        kept = self._unchanged(number, as_before)
        if not again.size:
            return kept
        self._redone += again.size
        found = []
        for before, mask, made in zip(kept, are, self._made(number, again, changed), strict=True):
            found.append(np.empty((len(mask), before.shape[1]), np.float32))
            found[-1][~mask], found[-1][mask] = before, made
        return found

    def _unchanged(self, number: int, nodes: list[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of an inner layer that events have not changed, by kind."""
        if self._inner_rows is not None and number == len(self._known):
            widths = self._widths[number - 1]
            return [
                self._inner_rows(kind, self._graph.ids_of(vertices))
                if vertices.size and widths[kind]
                else np.empty((len(vertices), widths[kind]), np.float32)
                for kind, vertices in enumerate(nodes)
            ]
        known = self._known[number - 1]
        self._complete(number, np.concatenate(nodes))
        return [known.get(kind, vertices) for kind, vertices in enumerate(nodes)]

    def _complete(self, number: int, vertices: np.ndarray) -> None:
        """Have the rows of vertices that have not changed be known."""
        known = self._known[number - 1]
        missing = vertices[~known.known[vertices]]
        unchanged = [np.empty(0, np.int64)] * number
        for some in self._pieces(missing):
            kinds = self._graph.kinds_of(some)
            for kind, rows in enumerate(self._made(number, some, unchanged)):
                known.put(kind, some[kinds == kind], rows)

    def _pieces(self, vertices: np.ndarray) -> Sequence[np.ndarray]:
        """Split vertices so that those of a piece have few in-edges together, or are one."""
        degrees = self._graph.degree_counts(vertices, IN)
        pieces = np.cumsum(degrees) // EDGES_AT_ONCE
        return np.split(vertices, np.flatnonzero(np.diff(pieces)) + 1) if vertices.size else []

    def _note(self, _: Events, change: EpochChange) -> None:
        """Forget the rows that an epoch may have changed."""
        touched = self._taken(change)
        for known in self._known:
            known.reserve(self._graph.rows)
        if not any(one.is_used for one in self._known):
            return
        reached(self._reach, self._graph, touched, lambda number, rows: self._known[number - 1].forget(rows))

    def _taken(self, change: EpochChange) -> Touched:
        """Return what events have touched, and keep the attributes that they brought."""
        self._graph = self._core.inspection()
        touched = self._graph.touched()
        if change.attr is not None and touched.edges.size:
            self._reserve_attributes()
            self._attr[touched.edges] = change.attr[touched.events]
        return touched

    def _values_of(self, edges: np.ndarray) -> EdgeValues:
        values = self._graph.values_of(edges)
        return EdgeValues(len(values), values.given, self._attr[edges]) if self._attr.shape[1] else values

    def _take_attributes(self) -> None:
        """Take over the attributes of edges: the graph's own keeper knows nothing of what is tried."""
        attr = self._live.hand_over_attributes()
        if attr is not None:
            self._reserve_attributes()
            self._attr[self._graph.tables.live_edges()] = attr

    def _reserve_attributes(self) -> None:
        rows = self._graph.edge_rows
        if rows > len(self._attr):
            more = np.zeros((rows + rows // 4, self._attr.shape[1]), np.float32)
            more[: len(self._attr)] = self._attr
            self._attr = more
