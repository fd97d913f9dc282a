"""Data and HeteroData of PyTorch Geometric as vertices and edges, without importing it.

`edge_weight` is the weight of an edge. Without one, `edge_attr` of one dimension is; `edge_attr` of two is the
attributes, of one column, too. `edge_type` are numbers of types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import one_array, usual_array
from freshet.operators.snapshot.given.columns import ids_of, narrowed, refuse, vectors
from freshet.operators.snapshot.given.graph import GivenEdges, GivenVertices
from freshet.schema import ATTR

Relation = tuple[str, str, str]


def is_data(given: Any) -> bool:
    """Return whether this is a Data object of one graph."""
    return hasattr(given, "edge_index") and hasattr(given, "num_nodes") and not is_hetero_data(given)


def is_hetero_data(given: Any) -> bool:
    """Return whether this is a HeteroData object."""
    return hasattr(given, "node_types") and hasattr(given, "edge_types") and hasattr(given, "metadata")


class Tensors:
    """A storage of PyTorch Geometric: its tensors by name, as arrays."""

    def __init__(self, store: Any, where: str, columns: Mapping[str, Any]) -> None:
        """`columns`: names of attributes by those that a snapshot has."""
        self.where, self._store, self._columns = where, store, columns

    def called(self, name: str, usual: str) -> str:
        """Return the name of the attribute that becomes a column, `usual` where none is given."""
        return str(self._columns.get(name) or usual)

    def has(self, name: str, usual: str) -> bool:
        """Return whether a column is there.

        Raises: SnapshotError where one is named that is not.
        """
        if name in self._columns and self._columns[name] is None:
            return False
        called = self.called(name, usual)
        there = called in self._store and self._store[called] is not None
        if not there and name in self._columns:
            refuse(f"{self.where}: no attribute {called!r}, which columns names", "columns")
        return there

    def read(self, name: str, usual: str) -> np.ndarray:
        """Return a tensor as an array.

        Raises: SnapshotError for what is none.
        """
        called = self.called(name, usual)
        return array_of(self._store[called], f"{self.where}{called}")


def array_of(value: Any, where: str) -> np.ndarray:
    """Return a tensor or what numpy takes as an array; sparse ones as dense.

    Raises: SnapshotError for what is none.
    """
    try:
        if hasattr(value, "detach"):
            value = value.detach()
            value = value.to_dense() if "sparse" in str(getattr(value, "layout", "")) else value
            value = value.float() if "bfloat16" in str(value.dtype) else value
            return np.asarray(value.cpu().numpy())
        if hasattr(value, "to_dense"):  # torch_sparse
            return array_of(value.to_dense(), where)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        refuse(f"{where}: expected a tensor, got {type(value).__name__}: {error}")


def nodes_of(store: Any, where: str, ids: Any, columns: Mapping[str, Any], kind: str | None = None) -> GivenVertices:
    """Return the vertices of a storage; `ids`: theirs, None for their numbers; `where`: what messages begin with.

    Raises: SnapshotError for features that are no numbers, and ids of another number.
    """
    tensors = Tensors(store, where, columns)
    rows = store.num_nodes
    if tensors.has("x", "x"):
        called, x = f"{where}{tensors.called('x', 'x')}", tensors.read("x", "x")
        if x.ndim != 2:
            refuse(f"{called}: expected a row of features for each vertex (2 dimensions), got {x.shape}", "x")
        values, rows = narrowed(x, called), len(x)
    elif kind is None:
        refuse(f"{where}x: missing; vertices need features", "x")
    elif rows is None:
        refuse(f"{where}num_nodes: missing; a kind without x needs it", "num_nodes")
    else:
        values = np.empty((rows, 0), np.float32)
    given = pa.array(np.arange(rows)) if ids is None else _given_ids(ids, rows, f"{where}ids")
    label = _labels(tensors, rows)
    kinds = None if kind is None else pa.array([kind], pa.string()).take(pa.array(np.zeros(rows, np.int64)))
    lengths = np.full(rows, values.shape[1], np.int64)
    return GivenVertices(where.removesuffix(".") or "data", given, values.reshape(-1), lengths, label, kinds)


def float_labels(store: Any, columns: Mapping[str, Any]) -> bool:
    """Return whether a storage has labels that are no numbers of classes, which a snapshot can't have."""
    tensors = Tensors(store, "", columns)
    if "label" in columns or not tensors.has("label", "y"):
        return False
    y, rows = tensors.read("label", "y"), store.num_nodes
    return not (y.dtype.kind in "iub" and y.size == rows and y.shape[0] == rows)


def links_of(
    store: Any,
    where: str,
    ends: tuple[pa.Array, pa.Array],
    columns: Mapping[str, Any],
    types: Sequence[str] | None = None,
    relation: Relation | None = None,
) -> GivenEdges:
    """Return the edges of a storage; `ends`: the ids of the vertices that `edge_index` counts.

    Raises: SnapshotError for an `edge_index` outside these, and values of another number or form.
    """
    tensors = Tensors(store, where, columns)
    edge_index = _edge_index(store, where, ends)
    edges = edge_index.shape[1]
    made = {name: ids.take(pa.array(rows)) for name, ids, rows in zip(("src", "dst"), ends, edge_index, strict=True)}
    has_weight = tensors.has("weight", "edge_weight")
    weight_of = "edge_weight"
    if tensors.has(ATTR, "edge_attr"):
        attr = _of_edges(tensors, ATTR, "edge_attr", edges)
        if attr.ndim == 1 and not has_weight and ATTR not in columns and columns.get("weight", "") is not None:
            has_weight, weight_of = True, "edge_attr"
        elif columns.get("weight") != tensors.called(ATTR, "edge_attr"):
            attr = attr.reshape(edges, -1 if edges else attr.shape[-1] if attr.ndim > 1 else 1)
            lengths = np.full(edges, attr.shape[1], np.int64)
            made[ATTR] = vectors(narrowed(attr, f"{where}{tensors.called(ATTR, 'edge_attr')}").reshape(-1), lengths)
    if has_weight:
        weight = _of_edges(tensors, "weight", weight_of, edges)
        called = f"{where}{tensors.called('weight', weight_of)}"
        if weight.size != edges:
            refuse(f"{called}: expected a number for each of {edges:,} edges, got {weight.shape}")
        made["weight"] = pa.array(narrowed(weight.reshape(-1), called))
    if tensors.has("type", "edge_type") and relation is None:
        made["type"] = _types(_of_edges(tensors, "type", "edge_type", edges), types, f"{where}edge_type")
    for name, value in zip(("src_kind", "type", "dst_kind"), relation or (), strict=False):
        made[name] = pa.array([value], pa.string()).take(pa.array(np.zeros(edges, np.int64)))
    return GivenEdges(where.removesuffix(".") or "data", made)


def mirrored(data: Any, mirrors: Mapping[str, str] | None) -> Iterator[Relation]:
    """Yield the relations of HeteroData that follow others by themselves, as `export_model` finds them.

    Raises: SnapshotError where one is none, or its edges are not those of the other one the other way round.
    """
    from freshet.gnn.pyg.errors import ExportError
    from freshet.gnn.pyg.kinds.metadata import mirrors_of

    relations = [tuple(one) for one in data.edge_types]
    try:
        followed = mirrors_of(relations, mirrors)
    except ExportError as error:
        refuse(str(error), "mirrors")
    for there, number in zip(relations, followed, strict=True):
        if number is None:
            continue
        here = relations[number]
        turned = array_of(data[there].edge_index, "edge_index")[::-1]
        if not _same_edges(array_of(data[here].edge_index, "edge_index"), turned):
            msg = f"mirrors: {there[1]!r} does not have the edges of {here[1]!r} the other way round"
            refuse(f"{msg}; if they are its own, give mirrors={{}}, here and to export_model", "mirrors")
        yield there


def _same_edges(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    return all(np.array_equal(a, b) for a, b in zip(_ordered(one), _ordered(other), strict=True))


def _ordered(edge_index: np.ndarray) -> np.ndarray:
    return edge_index[:, np.lexsort(edge_index)]


def _edge_index(store: Any, where: str, ends: tuple[pa.Array, pa.Array]) -> np.ndarray:
    if "edge_index" not in store or store["edge_index"] is None:
        hint = "; adj_t is not read: leave ToSparseTensor out" if "adj_t" in store else ""
        refuse(f"{where}edge_index: missing{hint}", "edge_index")
    found = array_of(store["edge_index"], f"{where}edge_index")
    if found.ndim != 2 or found.shape[0] != 2:
        refuse(f"{where}edge_index: expected the shape (2, edges), got {found.shape}", "edge_index")
    if found.dtype.kind not in "iu" and found.size:
        refuse(f"{where}edge_index: expected integers, got {found.dtype}", "edge_index")
    for name, rows, ids in zip(("source", "target"), found, ends, strict=True):
        outside = (rows < 0) | (rows >= len(ids))
        if outside.any():
            at = int(np.argmax(outside))
            refuse(
                f"{where}edge_index: column {at}: expected a {name} from 0 to {len(ids) - 1}, got {rows[at]}",
                "edge_index",
            )
    return found.astype(np.int64)


def _of_edges(tensors: Tensors, name: str, usual: str, edges: int) -> np.ndarray:
    found = tensors.read(name, usual)
    if not found.ndim or found.shape[0] != edges:
        called = f"{tensors.where}{tensors.called(name, usual)}"
        refuse(f"{called}: expected a row for each of {edges:,} edges, got {found.shape}")
    return found


def _types(numbers: np.ndarray, names: Sequence[str] | None, where: str) -> pa.Array:
    """The types of edges by their numbers; without names they are called as they are counted."""
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        refuse(f"{where}: expected an integer for each edge, got {numbers.dtype} {numbers.shape}", "edge_type")
    if names is None:
        return pa.array(numbers).cast(pa.string())
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(names):
        wrong = int(numbers.max() if numbers.min() >= 0 else numbers.min())
        refuse(f"{where}: expected numbers from 0 to {len(names) - 1}, as edge_types names, got {wrong}", "edge_types")
    return pa.array(list(names), pa.string()).take(pa.array(numbers.astype(np.int64)))


def _labels(tensors: Tensors, rows: int) -> pa.Array | None:
    if not tensors.has("label", "y") or float_labels(tensors._store, tensors._columns):
        return None
    called, y = f"{tensors.where}{tensors.called('label', 'y')}", tensors.read("label", "y")
    if y.dtype.kind not in "iub" or y.size != rows:
        refuse(f"{called}: expected an integer for each of {rows:,} vertices, got {y.dtype} {y.shape}")
    return pa.array(y.reshape(-1).astype(np.int64))


def _given_ids(given: Any, rows: int, where: str) -> pa.Array:
    if hasattr(given, "detach"):
        given = array_of(given, where)
    try:
        if hasattr(given, "to_arrow"):  # a series of polars
            found = given.to_arrow()
        else:
            found = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        refuse(f"{where}: expected integers of 64 bits or strings: {str(error)[:200]}", "ids")
    array = ids_of(usual_array(one_array(found)), where)
    if len(array) != rows:
        refuse(f"{where}: expected {rows:,}, one for each vertex, got {len(array):,}", "ids")
    return array
