"""Rows learned for the ids of a kind, and their lookup: tensors `learned.KIND.rows` and `.ids` or `.digests`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshet.gnn.kinds.declarations import DeclaredLearned
from freshet.gnn.rows.layer import Shape

PREFIX = "learned."
DIGEST_BYTES = 16
_DIGEST = f"S{DIGEST_BYTES}"
IDS, DIGESTS, ROWS = "ids", "digests", "rows"


def tensors_of(kind: str, declared: DeclaredLearned) -> dict[str, Shape]:
    """Names and shapes of the tensors of a kind: int64 ids or uint8 digests of these, ascending, and float32 rows."""
    ids = {DIGESTS: (declared.count, DIGEST_BYTES)} if declared.ids == "string" else {IDS: (declared.count,)}
    return {f"{PREFIX}{kind}.{name}": shape for name, shape in {**ids, ROWS: (declared.count, declared.width)}.items()}


def as_kept(name: str, given: np.ndarray) -> np.ndarray | None:
    """Return a tensor of ids in the type that it is kept in; None for a tensor of numbers.

    Raises: ValueError for one of another type.
    """
    dtype = {IDS: np.dtype(np.int64), DIGESTS: np.dtype(np.uint8)}.get(name.rpartition(".")[2])
    if not name.startswith(PREFIX) or dtype is None:
        return None
    if given.dtype != dtype:
        msg = f"{name}: got {given.dtype}, expected {dtype}"
        raise ValueError(msg)
    return np.ascontiguousarray(given)


def digests_of(names: Iterable[bytes]) -> np.ndarray:
    """Return what string ids are looked up by: BLAKE2b of their UTF-8, (n, DIGEST_BYTES) uint8."""
    found = b"".join(hashlib.blake2b(name, digest_size=DIGEST_BYTES).digest() for name in names)
    return np.frombuffer(found, np.uint8).reshape(-1, DIGEST_BYTES)


@dataclass(frozen=True, eq=False)
class LearnedRows:
    """Rows of the ids that there were at training. Shapes: keys (n,) ascending, int64 or digests; rows (n, width)."""

    keys: np.ndarray
    rows: np.ndarray

    @staticmethod
    def of(kind: str, declared: DeclaredLearned, weights: Mapping[str, np.ndarray]) -> LearnedRows:
        """Return the rows of a kind among the weights of a model."""
        ids = weights[f"{PREFIX}{kind}.{DIGESTS if declared.ids == 'string' else IDS}"]
        return LearnedRows(_keys(ids), weights[f"{PREFIX}{kind}.{ROWS}"])

    @property
    def width(self) -> int:
        """Width of a vertex's learned rows."""
        return self.rows.shape[1]

    @property
    def of_strings(self) -> bool:
        """True if ids are strings."""
        return self.keys.dtype.kind == "S"

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of ids, (n, width) float32, and which of them are known, (n,) bool; zeros for the others.

        Shapes: ids (n,) int64, or (n, DIGEST_BYTES) uint8 of strings.
        """
        places, known = find_ids(self.keys, ids)
        rows = np.zeros((len(places), self.width), np.float32)
        rows[known] = self.rows[places[known]]
        return rows, known


def find_ids(there: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of ids among those that are there, (n,) int64, and which are there at all, (n,) bool.

    The place of one that is not there is that of another. Shapes: both (n,) int64 or (n, DIGEST_BYTES) uint8, those
    that are there ascending.
    """
    keys, sought = _keys(there), _keys(asked)
    if sought.dtype != keys.dtype:
        return np.zeros(len(sought), np.int64), np.zeros(len(sought), bool)
    places = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    return places, keys[places] == sought


def learned_weights(kind: str, ids: Sequence[Any], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tensors of a kind: ids that are all whole numbers or all strings, each once, and the rows of these.

    Raises: ValueError for ids of other types, and for an id that is there twice.
    """
    if len(ids) != len(rows):
        msg = f"{len(ids)} ids for {len(rows)} rows"
        raise ValueError(msg)
    if all(isinstance(one, str) for one in ids):
        name, kept = DIGESTS, digests_of(one.encode() for one in ids)
    elif all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in ids):
        name, kept = IDS, np.array(ids, np.int64)
    else:
        wrong = next(one for one in ids if type(one) is not type(ids[0]) or not isinstance(one, str | int | np.integer))
        msg = f"ids have {wrong!r} ({type(wrong).__name__}) among them, expected whole numbers alone or strings alone"
        raise ValueError(msg)
    keys = _keys(kept)
    order = np.argsort(keys, kind="stable")
    twice = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if twice.size:
        msg = f"the id {ids[int(order[twice[0]])]!r} is there twice"
        raise ValueError(msg)
    return {f"{PREFIX}{kind}.{name}": kept[order], f"{PREFIX}{kind}.{ROWS}": np.ascontiguousarray(rows[order])}


def refuse_unordered(kind: str, learned: LearnedRows) -> None:
    """Refuse ids that are not ascending, since none would be found.

    Raises: ValueError
    """
    if not (learned.keys[1:] > learned.keys[:-1]).all():
        msg = f"learned.{kind}: ids are not ascending; export the model again"
        raise ValueError(msg)


def _keys(ids: np.ndarray) -> np.ndarray:
    """Ids as values that have an order."""
    if ids.dtype == np.int64:
        return ids
    return np.ascontiguousarray(ids).view(_DIGEST).reshape(len(ids))
