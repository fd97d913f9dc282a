"""Answers that are computed of rows: neighbours, and scores of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from freshet.job.serving.bounds.asked_ids import AskedPairs, pairs_of_values
from freshet.job.serving.bounds.neighbours import LINK
from freshet.job.serving.protocol.columns import column_of_ids, taken
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import Wanted, as_text
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.nearest import Vector, Vertex, Wish, neighbours_of
from freshet.job.serving.tables.one_epoch import OneEpoch
from freshet.job.serving.tables.served import Answer, Served
from freshet.state.served.ids import plain_ids
from freshet.state.served.mapped import Found

if TYPE_CHECKING:
    from freshet.gnn.layers.link_scores import LinkScores

_PAIRS_AT_ONCE = 8192
Gone = Callable[[], bool]  # whether the caller has gone


class Computed(NamedTuple):
    """An answer, as each protocol sends it, and what it comes from.

    `as_table`: whether it is to have logits -> a table, with the answer's metadata. Over HTTP it has `found`, rows and
    columns beside them, if any, `lists` by name, or by name and kind, and `more` beside the epoch.
    """

    served: Served
    epoch: int
    as_table: Callable[[bool], pa.Table]
    found: tuple[Answer, Mapping[str, np.ndarray]] | None = None
    lists: Mapping[str, Sequence[Any] | Mapping[str, Sequence[Any]]] = {}
    more: Mapping[str, Any] = {}
    new: np.ndarray | None = None


def nearest(lookup: Lookup, asked: Any, wanted: Wanted, gone: Gone | None = None) -> Computed:
    """Answer {"id": ID or "vector": [...], "model": SHA-256}, and a Wish: k, metric, among, exclude_self, approximate.

    `kind` is that of all vertices, or `kinds` those of the vertex and of the ones that are found.
    """
    if not isinstance(asked, dict) or ("id" in asked) == ("vector" in asked):
        msg = 'nearest: expected {"id": ID} or {"vector": [...]}, with k and metric'
        raise BadRequestError(msg)
    wish = Wish(**{name: asked[name] for name in Wish._fields if name in asked})
    if type(wish.k) is not int or not isinstance(wish.metric, str):
        msg = "nearest: expected an integer k and the name of a metric"
        raise BadRequestError(msg)
    left, lookup = ends_of_nearest(lookup, asked.get("kind"), asked.get("kinds"), wish.metric)
    _wait([left, lookup], wanted, gone)
    found = neighbours_of(lookup, _point(asked), wish, left)
    answer, columns = found.answer, {"score": found.scores}
    lists = {} if found.unknown is None else {"unknown": found.unknown}
    metadata = found.more | lists

    def as_table(logits: bool) -> pa.Table:
        table = lookup.as_table(answer, columns, logits=logits)
        return table.replace_schema_metadata(table.schema.metadata | as_text(metadata)) if metadata else table

    return Computed(answer.served, answer.epoch, as_table, (answer, columns), lists, found.more)


def _point(asked: dict[str, Any]) -> Vertex | Vector:
    model = asked.get("model")
    if "id" in asked:
        if model is not None:
            msg = "nearest: model goes with a vector; leave it out beside an id"
            raise BadRequestError(msg)
        return Vertex(asked["id"])
    try:
        return Vector(np.array(asked["vector"], np.float32), model)
    except (TypeError, ValueError) as error:
        msg = "nearest: expected a vector of numbers"
        raise BadRequestError(msg) from error


def score(lookup: Lookup, asked: Any, wanted: Wanted, gone: Gone | None = None) -> Computed:
    """Answer {"pairs": [[LEFT, RIGHT], ...]}: null where an end is unknown; all at one epoch.

    `kinds` are those of the left and of the right ids.
    """
    left, right = ends_of_pairs(lookup, asked.get("kinds"))
    apart = left is not right
    pairs_in = cache(partial(pairs_of_values, asked["pairs"], apart=apart))
    pairs_in(left.table.strings)  # before anything is waited for
    _wait([left, right], wanted, gone)
    ends = OneEpoch(left, right)

    def read() -> tuple[Served, AskedPairs, LinkScores, list[Found]]:
        one, other, upto = ends.now()
        pairs, heads = pairs_in(one.table.strings), one.link_scores(other)
        return one, pairs, heads, [of.table.get(ids, upto) for of, ids in zip((one, other), pairs.ids, strict=False)]

    served, pairs, heads, found = ends.read(read)
    known = [of.own >= 0 for of in found]
    scores, has = np.empty(len(pairs.left), np.float32), known[0][pairs.left] & known[-1][pairs.right]
    for at in range(0, len(scores), _PAIRS_AT_ONCE):
        some = slice(at, at + _PAIRS_AT_ONCE)
        scores[some] = heads.of(found[0].rows[pairs.left[some]], found[-1].rows[pairs.right[some]])
    for end, there in zip((left, right), known, strict=False):
        end.ids_found += int(there.sum())
        end.ids_missing += int(len(there) - there.sum())

    def as_table(_logits: bool) -> pa.Table:
        ends = [column_of_ids(taken(pairs.ids[0], pairs.left)), column_of_ids(taken(pairs.ids[-1], pairs.right))]
        table = pa.table([*ends, pa.array(scores, mask=~has)], ["left", "right", "score"])
        return table.replace_schema_metadata({**served.metadata(found[0].epoch), "scored_by": heads.by})

    finite = (has & np.isfinite(scores)).tolist()  # scores that are not finite are null in JSON, too
    listed = [one if there else None for one, there in zip(scores.tolist(), finite, strict=True)]
    unknown = [plain_ids(taken(ids, np.flatnonzero(~there))) for ids, there in zip(pairs.ids, known, strict=True)]
    by_kind = dict(zip((left.job.kind_name, right.job.kind_name), unknown, strict=True)) if apart else unknown[0]
    return Computed(served, found[0].epoch, as_table, lists={"scores": listed, "unknown": by_kind})


def ends_of_nearest(
    lookup: Lookup, kind: str | None, kinds: Sequence[str] | None, metric: str
) -> tuple[Lookup, Lookup]:
    """Return the lookups of the vertex or the vector, and of the vertices to find.

    Raises: BadRequestError
    """
    if kind is not None and (metric == LINK or kinds is not None):
        msg = "nearest: metric link takes kinds, of the vertex and of those to find; kind and kinds do not go together"
        raise BadRequestError(msg)
    if metric == LINK:
        return ends_of_pairs(lookup, kinds)
    if kinds is None:
        found = lookup.of(kind)
        return found, found
    if isinstance(kinds, str) or len(kinds) != 2:
        msg = f"kinds: expected [LEFT, RIGHT], got {str(kinds)[:50]!r}"
        raise BadRequestError(msg)
    return lookup.of(kinds[0]), lookup.of(kinds[1])


def ends_of_pairs(lookup: Lookup, kinds: Sequence[str] | None) -> tuple[Lookup, Lookup]:
    """Return the lookups of the left and the right ends of pairs of these kinds.

    Where none are named, they are those of the only link head of the model for kinds that are here, or those of the
    only kind.

    Raises: BadRequestError where that leaves several, and for kinds that are not here; it says what to start.
    """
    if kinds is not None and (isinstance(kinds, str) or len(kinds) != 2):
        msg = f"kinds: expected [LEFT, RIGHT], got {str(kinds)[:50]!r}"
        raise BadRequestError(msg)
    here = lookup.beside or {lookup.job.kind_name: lookup}
    scored = lookup.served.scored_kinds if kinds is None else [(kinds[0], kinds[1])]
    able = [pair for pair in scored if set(pair) <= here.keys() and (kinds is None or all(pair))]
    if len(able) == 1:
        return here[able[0][0]], here[able[0][1]]
    if not scored and len(here) == 1:
        return lookup, lookup
    has = f"this server has the embeddings of {', '.join(here)}" if any(here) else "the vertices here have no kinds"
    if able or not scored:
        known = able or [(one, other) for one in here for other in here]
        msg = f"kinds: {has}; name those of the left and the right ids, of {_listed(known)}"
    else:
        start = f"start one of both: `freshet serve --kind {','.join(dict.fromkeys(scored[0]))}`"
        wants = "got" if kinds is not None else "and the model scores"
        msg = f"kinds: {has}, {wants} {_listed(scored)}; {start if any(here) else 'leave kinds out'}"
    raise BadRequestError(msg)


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"[{one}, {other}]" for one, other in pairs)


def _wait(lookups: Sequence[Lookup], wanted: Wanted, gone: Gone | None) -> None:
    for one in dict.fromkeys(lookups):
        one.wait(wanted, gone)
