"""The vertices that are nearest to a vertex or a vector, all at one epoch: exactly, or by the lists of an index."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshet.job.serving.bounds.asked_ids import ids_of_values
from freshet.job.serving.bounds.neighbours import LINK, METRICS, turns
from freshet.job.serving.protocol.columns import taken
from freshet.job.serving.protocol.errors import BadRequestError, OtherModelError, UnknownVertexError
from freshet.job.serving.protocol.wanted import EPOCH
from freshet.job.serving.tables.lookup import K_MAX, Lookup
from freshet.job.serving.tables.one_epoch import OneEpoch
from freshet.job.serving.tables.served import Answer, Served
from freshet.state.served.ids import Ids, plain_ids
from freshet.state.served.mapped import HistoryTooShortError

if TYPE_CHECKING:
    from freshet.state.served.nearest import Best, Target

_ROWS_AT_ONCE = 4096  # that a function scores; others are scored where they lie


class Wish(NamedTuple):
    """The neighbours that are wanted: at most `k`, the best by a metric.

    `among`: none but these ids. `exclude_self`: without the vertex itself. `approximate`: by the lists of an index.
    """

    k: int = 10
    metric: str = METRICS[0]
    among: list[Any] | None = None
    exclude_self: bool = False
    approximate: bool = False

    def check(self) -> None:
        """Raises: BadRequestError for what makes no sense."""
        if not 0 < self.k <= K_MAX:
            msg = f"k: expected 1 to {K_MAX}, got {self.k}"
            raise BadRequestError(msg)
        if self.metric not in METRICS:
            msg = f"metric: expected {', '.join(METRICS[:-1])} or {METRICS[-1]}, got {self.metric!r}"
            raise BadRequestError(msg)
        if self.approximate and self.metric == LINK:
            msg = "approximate: goes with the metrics " + ", ".join(METRICS[:-1])
            msg += "; by link neighbours are exact: leave it out"
            raise BadRequestError(msg)


class Vertex(NamedTuple):
    """A vertex whose neighbours are wanted."""

    id: Any


class Vector(NamedTuple):
    """A vector whose neighbours are wanted; `model`: SHA-256 of the model that it is of, if that is known."""

    values: np.ndarray
    model: str | None = None


class NearestRows(NamedTuple):
    """The rows that were found, their scores, the best first, and what else the answer says.

    `is_approximate`: None where that was not asked. `recall`: the measured share of the exact neighbours that such
    answers have. `unknown`: ids of `among` without a row.
    """

    answer: Answer
    scores: np.ndarray
    is_approximate: bool | None = None
    recall: float | None = None
    unknown: list[Any] | None = None

    @property
    def more(self) -> dict[str, Any]:
        """Metadata of an answer that was to be approximate, beside its epoch."""
        if self.is_approximate is None:
            return {}
        recall = None if self.recall is None else round(self.recall, 4)
        return {"epoch": self.answer.epoch, "approximate": self.is_approximate, "recall": recall}


def neighbours_of(lookup: Lookup, of: Vertex | Vector, wish: Wish, left: Lookup | None = None) -> NearestRows:
    """Return the neighbours of a vertex or a vector, with the vector of a vertex of the same epoch as the rows.

    `left`: the lookup of its kind, where they are of another kind.

    Raises: BadRequestError; UnknownVertexError; OtherModelError for rows of another model; NotReadyError;
        HistoryTooShortError where rows change faster than they can be read.
    """
    wish.check()
    if wish.exclude_self and isinstance(of, Vector):
        msg = "exclude_self: goes with an id; a vector is no vertex"
        raise BadRequestError(msg)
    one = left or lookup
    if isinstance(of, Vertex):
        one.ids_of([of.id])  # before anything is read
    if wish.among is not None:
        lookup.ids_of(wish.among)
    ends = OneEpoch(one, lookup)
    return ends.read(partial(_found, one, lookup, ends, of, wish))


def _found(one: Lookup, lookup: Lookup, ends: OneEpoch, of: Vertex | Vector, wish: Wish) -> NearestRows:
    from freshet.state.served.nearest import at_one_epoch

    source, served, upto = ends.now(whole=True)
    end = _End(one, source, served, of, wish)
    among = None if wish.among is None else _each_once(served, wish.among)
    slots = None if among is None else served.whole.slots_of(among)
    best, recall = None, None
    if wish.approximate and among is None:
        best, recall = _by_lists(lookup, served, end.target_at, wish)
    is_exact = best is None
    if best is None:
        room = _room_of(served, wish)
        with lookup.budget.hold(room, "the search for neighbours"), turns:
            best = at_one_epoch(served.whole, upto, end.target_at, wish.k, slots)
    one.ids_found += int(isinstance(of, Vertex))
    answer = Answer(best.epoch, best.ids, best.epochs, best.rows, len(best.epochs), served)
    unknown = None if among is None else plain_ids(taken(among, np.flatnonzero(best.own < 0)))
    if not wish.approximate:
        return NearestRows(answer, best.scores, unknown=unknown)
    return NearestRows(answer, best.scores, not is_exact, 1.0 if is_exact else recall, unknown)


def _by_lists(
    lookup: Lookup, served: Served, target_at: Callable[[int], Target], wish: Wish
) -> tuple[Best | None, float | None]:
    """Return what the lists find and their recall; nothing while there are none, and of what has no lists."""
    if (known := lookup.neighbourhoods) is None or served.job.consistency != EPOCH:
        return None, None
    lists = known.of(served.whole, METRICS.index(wish.metric), lookup.budget)
    return lists.search(target_at, wish.k), lists.recall


def _each_once(served: Served, among: list[Any]) -> Ids:
    ids = ids_of_values(among, served.table.strings)
    return ids_of_values(list(dict.fromkeys(plain_ids(ids))), served.table.strings)


def _room_of(served: Served, wish: Wish) -> int:
    rows = _ROWS_AT_ONCE if wish.metric == LINK else 0
    return 16 * (wish.k + len(wish.among or ())) + rows * (4 * served.table.width + 32)


class _End:
    """The vertex or the vector, as of whichever epoch the rows are read."""

    def __init__(self, one: Lookup, source: Served, served: Served, of: Vertex | Vector, wish: Wish) -> None:
        """`one`: the lookup that the source of the vertex or the vector is of, `served` that of the rows."""
        self._one, self._source, self._served, self._of, self._wish = one, source, served, of, wish
        self._scores = source.link_scores(served) if wish.metric == LINK else None
        widths = source.table.width, served.table.width
        if self._scores is None and len(set(widths)) > 1:
            msg = f"kinds: by {wish.metric} rows of both must have as many numbers, got {widths[0]} and {widths[1]}"
            raise BadRequestError(msg)

    def target_at(self, epoch: int) -> Target:
        """Return what rows are compared with at an epoch.

        Raises: MissedError, HistoryTooShortError; as `neighbours_of` else.
        """
        from freshet.state.served.nearest import Target

        vector, slot = self._given(self._of) if isinstance(self._of, Vector) else self._row(self._of, epoch)
        skipped = slot if self._wish.exclude_self else -1
        if self._scores is None:
            return Target(vector, METRICS.index(self._wish.metric), skipped)
        pairs = self._scores.of
        return Target(vector, -1, skipped, lambda rows: pairs(vector[None], rows))

    def _given(self, of: Vector) -> tuple[np.ndarray, int]:
        of_rows, found = self._served.job.model_sha256, np.asarray(of.values, np.float32).reshape(-1)
        if of.model not in (None, of_rows):
            msg = f"nearest: the embeddings are of the model {of_rows or '(unknown)'}, and the vector is of {of.model}"
            raise OtherModelError(msg)
        width = self._source.table.width
        if found.shape[0] != width or not np.isfinite(found).all():
            msg = f"vector: expected {width} finite numbers, got {found.shape[0]}"
            raise BadRequestError(msg)
        return found, -1

    def _row(self, of: Vertex, epoch: int) -> tuple[np.ndarray, int]:
        from freshet.state.served.nearest import row_at

        table = self._source.whole
        asked, slot = ids_of_values([of.id], table.strings), -1
        if self._source is self._served:
            slot = int(table.slots_of(asked)[0])
            row = row_at(table, slot, epoch)
        else:
            found = table.get(asked, epoch)
            if found.epoch != epoch:
                msg = f"{table.path}: is at epoch {found.epoch}, the rows are at epoch {epoch}; ask again in a moment"
                raise HistoryTooShortError(msg)
            row = found.rows[0] if found.own[0] >= 0 else None
        if row is None:
            self._one.ids_missing += 1
            msg = f"nearest: no vertex {str(of.id)[:50]!r}"
            raise UnknownVertexError(msg)
        return row, slot
