"""Ids that a model has learned rows of, and the one in its place has not."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.gnn.any_plan import AnyPlan
from freshet.gnn.kinds.learned import LearnedRows, digests_of

_SHOWN = 5


class Forgotten(NamedTuple):
    """Vertices of a kind for whose ids only the earlier model has learned rows: how many, and some of them."""

    kind: str
    vertices: int
    some: list[int | str]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.some)) + (", ..." if self.vertices > len(self.some) else "")
        return f"{self.vertices:,} vertices of {self.kind or 'the graph'} ({shown})"


def forgotten(old: AnyPlan, new: AnyPlan, snapshot: Path) -> list[Forgotten]:
    """Return the vertices of a snapshot that lose their learned rows with a new model, by kind."""
    names, found = _names(old), list[Forgotten]()
    later = dict(zip(_names(new), new.learned, strict=False))
    for kind, had in zip(names, old.learned, strict=False):
        if had is not None:
            count, some = _only_known_to(had, later.get(kind), snapshot, kind if len(names) > 1 else "")
            if count:
                found.append(Forgotten(kind, count, some))
    return found


def _names(plan: AnyPlan) -> tuple[str, ...]:
    return ("",) if plan.features.kinds is None else plan.features.kinds.names


def _only_known_to(had: LearnedRows, has: LearnedRows | None, snapshot: Path, kind: str) -> tuple[int, list[int | str]]:
    """Return how many ids of a kind only one of two has, and the first of them."""
    count, some = 0, list[int | str]()
    with pq.ParquetFile(snapshot / "vertices.parquet") as file:
        of_kind = bool(kind) and "kind" in file.schema_arrow.names
        for batch in file.iter_batches(columns=["id", "kind"] if of_kind else ["id"]):
            ids = batch.filter(pc.equal(batch["kind"], kind))["id"] if of_kind else batch["id"]
            keys = digests_of(map(str.encode, ids.to_pylist())) if had.of_strings else ids.to_numpy()
            lost = had.find(keys)[1] if has is None else had.find(keys)[1] & ~has.find(keys)[1]
            count += int(lost.sum())
            some += ids.take(np.flatnonzero(lost)[: _SHOWN - len(some)]).to_pylist()
    return count, some
