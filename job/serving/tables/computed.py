"""Answers that are computed of rows: neighbours, and scores of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from freshet.job.serving.bounds.asked_ids import AskedPairs, pairs_of_values
from freshet.job.serving.bounds.neighbours import METRICS
from freshet.job.serving.protocol.columns import column_of_ids, taken
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import Wanted
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Answer, Served
from freshet.state.served.ids import plain_ids

_PAIRS_AT_ONCE = 8192
Gone = Callable[[], bool]  # whether the caller has gone


class Computed(NamedTuple):
    """An answer, as each protocol sends it, and what it comes from.

    `as_table`: whether it is to have logits -> a table, with the answer's metadata. Over HTTP it has `found`, rows and
    columns beside them, if any, and `lists` by name.
    """

    served: Served
    epoch: int
    as_table: Callable[[bool], pa.Table]
    found: tuple[Answer, Mapping[str, np.ndarray]] | None = None
    lists: Mapping[str, Sequence[Any]] = {}


def nearest(lookup: Lookup, asked: Any, wanted: Wanted, gone: Gone | None = None) -> Computed:
    """Answer {"id": ID or "vector": [...], "k": K, "metric": "cosine", "dot" or "link", "model": SHA-256}."""
    if not isinstance(asked, dict) or ("id" in asked) == ("vector" in asked):
        msg = 'nearest: expected {"id": ID} or {"vector": [...]}, with k and metric'
        raise BadRequestError(msg)
    k, metric = asked.get("k", 10), asked.get("metric", METRICS[0])
    if type(k) is not int or not isinstance(metric, str):
        msg = "nearest: expected an integer k and the name of a metric"
        raise BadRequestError(msg)
    lookup.wait(wanted, gone)
    model = asked.get("model")
    if "id" in asked:
        if model is not None:
            msg = "nearest: model goes with a vector; leave it out beside an id"
            raise BadRequestError(msg)
        answer, scores = lookup.nearest_to(asked["id"], k, metric)
    else:
        try:
            vector = np.array(asked["vector"], np.float32)
        except (TypeError, ValueError) as error:
            msg = "nearest: expected a vector of numbers"
            raise BadRequestError(msg) from error
        answer, scores = lookup.nearest(vector, k, metric, model)
    columns = {"score": scores}

    def as_table(logits: bool) -> pa.Table:
        return lookup.as_table(answer, columns, logits=logits)

    return Computed(answer.served, answer.epoch, as_table, (answer, columns))


def score(lookup: Lookup, asked: Any, wanted: Wanted, gone: Gone | None = None) -> Computed:
    """Answer {"pairs": [[LEFT, RIGHT], ...]}: null where an end is unknown; all at one epoch."""
    pairs_of_values(asked["pairs"], lookup.table.strings)  # before anything is waited for
    lookup.wait(wanted, gone)
    served = lookup.served
    pairs, heads = pairs_of_values(asked["pairs"], served.table.strings), served.link_scores
    found = served.table.get(pairs.ids)
    known = found.own >= 0
    scores, has = np.empty(len(pairs.left), np.float32), known[pairs.left] & known[pairs.right]
    for at in range(0, len(scores), _PAIRS_AT_ONCE):
        some = slice(at, at + _PAIRS_AT_ONCE)
        scores[some] = heads.of(found.rows[pairs.left[some]], found.rows[pairs.right[some]])
    lookup.ids_found += int(known.sum())
    lookup.ids_missing += int(len(known) - known.sum())

    def as_table(_logits: bool) -> pa.Table:
        ends = [column_of_ids(taken(pairs.ids, at)) for at in (pairs.left, pairs.right)]
        table = pa.table([*ends, pa.array(scores, mask=~has)], ["left", "right", "score"])
        return table.replace_schema_metadata({**served.metadata(found.epoch), "scored_by": heads.by})

    return Computed(served, found.epoch, as_table, lists=_in_json(pairs, scores, has, known))


def _in_json(pairs: AskedPairs, scores: np.ndarray, has: np.ndarray, known: np.ndarray) -> dict[str, Sequence[Any]]:
    """Return the lists of an answer; scores that are not finite are null, too."""
    finite = (has & np.isfinite(scores)).tolist()
    listed = [one if there else None for one, there in zip(scores.tolist(), finite, strict=True)]
    return {"scores": listed, "unknown": plain_ids(taken(pairs.ids, np.flatnonzero(~known)))}
