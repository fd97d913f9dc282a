"""`freshet.labels`: joins labels to the graph of a job, and divides them into training and validation."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch_geometric.data import Data, HeteroData

from freshet.errors import InputError
from freshet.job.training.label_file import Labels, read_labels
from freshet.job.training.splits import by_hash, by_time

UNLABELLED = -1
_Graph = TypeVar("_Graph", Data, HeteroData)


def labels(
    data: _Graph,
    path: str | Path | Any,
    kind: str | None = None,
    share: float = 0.2,
    split: Literal["hash", "time"] = "hash",
) -> _Graph:
    """Join labels to a graph by the ids of its vertices.

    Sets `y`, `train_mask` and `val_mask` on `data`, or on the store of each kind that has labels. Without a label `y`
    is -1, and both masks are False. Labels of ids that the graph does not have are left out; `data.labels_skipped` is
    their number, and a warning names one. In `freshet.LiveGraph`'s graphs the ids are in `id`.

    `path`: a Parquet or Arrow file with the columns `id` and `label` (integers, the numbers of classes from 0), and
    optionally `kind` and `ts` (integers or timestamps); or a frame of pandas, polars or Arrow with these. An id may
    be there several times with one label. With other labels, the one with the greatest `ts` holds.
    `kind`: the kind of all ids; where the file has a column `kind`, only rows of this kind are read.
    `share`: the part of the labels that is for validation, from 0 up to and without 1.
    `split`: "hash" takes the vertices for validation by a hash of (kind, id): each stays on its side in every run, on
    every machine, whatever else the graph has. "time" takes the newest labels by `ts`, of all kinds together. Labels
    that are as old as the oldest of these are for validation, too; so the share may be larger.

    Shapes: y (vertices,) int64; train_mask, val_mask (vertices,) bool
    Raises: InputError for a file that can't be read, a missing column or value, a label that is no integer, two labels
        of an id, ids of another type than the graph's, or an unknown kind; it names the file, the column and the row.
    """
    join_labels(data, read_labels(path), kind, share, split)
    return data


def join_labels(
    data: Data | HeteroData, given: Labels, kind: str | None, share: float, split: Literal["hash", "time"]
) -> None:
    """Join labels that were read to a graph; see `labels`."""
    if not 0 <= share < 1:
        msg = f"share: expected a number from 0 up to 1, without 1, got {share}"
        raise InputError(msg)
    if split not in ("hash", "time"):
        msg = f"split: expected 'hash' or 'time', got {split!r}"
        raise InputError(msg)
    found = _of_kinds(data, given, kind).distinct()
    stores = _stores(data, found, kind)
    joined = {name: _places(store, found.of(name), name) for name, store in stores.items()}
    masks = _masks(found, joined, share, split)
    skipped = 0
    for name, store in stores.items():
        own, places = found.of(name), joined[name]
        skipped += _fill(store, own, places, masks[name])
    data.labels_skipped = skipped


def _of_kinds(data: Data | HeteroData, found: Labels, kind: str | None) -> Labels:
    """Return the labels of the kind that is asked for, or of all of them.

    Raises: InputError for a kind that the graph does not have.
    """
    if isinstance(data, Data):
        if kind or found.kinds is not None:
            where = "kind" if kind else f"{found.where}: kind"
            msg = f"{where}: the graph has no kinds of vertices; leave it out"
            raise InputError(msg)
        return found
    there = f"the graph has {', '.join(data.node_types)}"
    if kind is not None and kind not in data.node_types:
        msg = f"kind: no kind {kind!r}; {there}"
        raise InputError(msg)
    if found.kinds is None:
        if kind is None and len(data.node_types) > 1:
            msg = f"{found.where}: no column kind; give kind=, or the column; {there}"
            raise InputError(msg)
        return found
    known = pc.is_in(found.kinds, pa.array(data.node_types, found.kinds.type)).to_numpy(zero_copy_only=False)
    if not known.all():
        row = int(np.argmin(known))
        msg = f"{found.where}: kind: row {row}: no kind {found.kinds[row].as_py()!r}; {there}"
        raise InputError(msg)
    return found if kind is None else found.of(kind)


def _stores(data: Data | HeteroData, found: Labels, kind: str | None) -> dict[str, Any]:
    """Return the stores that have labels, by kind; "" for a graph without kinds."""
    if isinstance(data, Data):
        return {"": data}
    if found.kinds is None:
        kinds = [kind or data.node_types[0]]
    else:
        kinds = [kind] if kind is not None else found.kinds.unique().to_pylist()
    return {name: data[name] for name in kinds}


def _places(store: Any, own: Labels, kind: str) -> np.ndarray:
    """Return the row of each label in a store, (labels,) int64; -1 where the graph does not have the id.

    Raises: InputError for a store without ids, and for ids of another type.
    """
    ids = _ids(store, kind)
    if not len(own.ids):
        return np.empty(0, np.int64)
    if len(ids) and pa.types.is_integer(ids.type) != pa.types.is_integer(own.ids.type):
        expected = "integers" if pa.types.is_integer(ids.type) else "strings"
        msg = f"{own.where}: id: expected {expected}, as the graph has, got {own.ids.type}"
        raise InputError(msg)
    return pc.index_in(own.ids, ids.cast(own.ids.type)).fill_null(-1).to_numpy().astype(np.int64)


def _ids(store: Any, kind: str) -> pa.Array:
    name = f"data[{kind!r}]" if kind else "data"
    if "id" not in store or store["id"] is None:
        msg = f"{name}: no id; expected the id of each vertex there, as freshet.LiveGraph gives it"
        raise InputError(msg)
    given = store["id"]
    try:
        found = pa.array(given.cpu().numpy() if isinstance(given, torch.Tensor) else given)
    except (pa.ArrowException, TypeError) as error:
        msg = f"{name}.id: expected integers or strings: {error}"
        raise InputError(msg) from None
    if not (pa.types.is_integer(found.type) or pa.types.is_string(found.type) or not len(found)):
        msg = f"{name}.id: expected integers or strings, got {found.type}"
        raise InputError(msg)
    if len(found) != store.num_nodes:
        msg = f"{name}.id: expected {store.num_nodes:,}, one for each vertex, got {len(found):,}"
        raise InputError(msg)
    return found


def _masks(found: Labels, joined: dict[str, np.ndarray], share: float, split: str) -> dict[str, np.ndarray]:
    """Return which labels are for validation, by kind; of those that the graph has, in their order.

    Raises: InputError for a split by time without times, or by one that all labels have.
    """
    own = {name: found.of(name) for name in joined}
    there = {name: places >= 0 for name, places in joined.items()}
    if split == "hash":
        return {name: by_hash(name, own[name].ids.filter(pa.array(there[name])), share) for name in joined}
    if found.ts is None:
        msg = f"{found.where}: no column ts, which split='time' needs"
        raise InputError(msg)
    times = [_ts(own[name])[there[name]] for name in joined]
    every = np.concatenate([np.empty(0, np.int64), *times])
    chosen = by_time(every, share)
    if chosen.any() and chosen.all():
        msg = f"{found.where}: ts: no label is left for training: the oldest are of the time of those for validation"
        raise InputError(msg)
    ends = np.cumsum([len(one) for one in times])
    return dict(zip(joined, np.split(chosen, ends[:-1]), strict=True))


def _ts(own: Labels) -> np.ndarray:
    assert own.ts is not None
    return own.ts


def _fill(store: Any, own: Labels, places: np.ndarray, is_validation: np.ndarray) -> int:
    """Set labels and masks of a store; return the number of labels that are skipped."""
    there = places >= 0
    y = np.full(store.num_nodes, UNLABELLED, np.int64)
    train, validation = np.zeros(len(y), bool), np.zeros(len(y), bool)
    y[places[there]] = own.labels[there]
    validation[places[there][is_validation]] = True
    train[places[there][~is_validation]] = True
    store.y, store.train_mask, store.val_mask = map(torch.from_numpy, (y, train, validation))
    skipped = int(len(there) - there.sum())
    if skipped:
        first = own.ids[int(np.argmin(there))].as_py()
        warnings.warn(
            f"{own.where}: {skipped:,} of {len(there):,} labelled ids are not in the graph, such as {first!r}; skipped",
            stacklevel=4,
        )
    return skipped
