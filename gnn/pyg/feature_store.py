"""`freshet.EmbeddingFeatureStore`: PyTorch Geometric's loaders read fresh embeddings from a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr

from freshet.errors import FreshetError

SERVED = ("embedding", "epoch", "logits", "class")


class MissingVertexError(FreshetError, KeyError):
    """A vertex that has no row now."""

    def __str__(self) -> str:
        return str(self.args[0])


class Client(Protocol):
    """The methods of `freshet.EmbeddingClient` that are needed."""

    ids_max: int

    def get(self, ids: Any, *, logits: bool = False) -> Any:
        """The rows of these ids that have one, as a table with `id`."""

    def all(self, *, logits: bool = False) -> Any:
        """All rows."""

    def close(self) -> None:
        """Close open resources."""


class EmbeddingFeatureStore(FeatureStore):  # type: ignore[misc, unused-ignore]
    """Tensors of a node type, read from a running server each time, all those of one call at one epoch.

    Shapes: embedding (n, width), logits (n, classes) float32; epoch, class (n,) int64
    """

    def __init__(
        self,
        client: Client | Callable[[], Client],
        ids: Sequence[int] | Sequence[str] | np.ndarray | Tensor | None = None,
        *,
        group_name: str | None = None,
        attrs: Mapping[str, str] | None = None,
        missing: float | None = None,
    ) -> None:
        """`client`: an EmbeddingClient, or what makes one, which each process of a loader's workers then does.

        `ids`: the vertex of each node index; None: the index is the vertex's id, and there are as many nodes as the
        greatest id says. `group_name`: the node type. `attrs`: tensors by name, each embedding, epoch, logits or class
        (default: {"x": "embedding"}). `missing`: what stands in the rows of vertices that are gone (epoch and
        class are -1); None: an error.
        Raises: ValueError for other attrs.
        """
        super().__init__()
        self._attrs = dict(attrs) if attrs is not None else {"x": "embedding"}
        if wrong := set(self._attrs.values()) - set(SERVED):
            msg = f"attrs: expected {', '.join(SERVED)}, got {', '.join(map(str, sorted(wrong)))}"
            raise ValueError(msg)
        self._make = client if callable(client) else (lambda: client)
        self._clients: dict[int, Client] = {}
        self._ids = None if ids is None else np.asarray(ids)
        self._group, self._missing = group_name, missing

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The tensors that there are."""
        return [TensorAttr(self._group, name) for name in self._attrs]

    def close(self) -> None:
        """Let go what this process has open."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Tensor]:
        """One request for all tensors of the same nodes: they are of one epoch."""
        found: list[Tensor | None] = [None] * len(attrs)
        for k, attr in enumerate(attrs):
            if found[k] is not None:
                continue
            same = [j for j in range(k, len(attrs)) if attrs[j].index is attr.index]
            names = {self._served(attrs[j]) for j in same}
            columns = self._columns(self._vertices(attr.index), names)
            for j in same:
                rows = columns[self._served(attrs[j])]
                found[j] = rows[0] if _is_one(attr.index) else rows
        return [tensor for tensor in found if tensor is not None]

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        served, n = self._served(attr), self._count() if attr.index is None else len(self._vertices(attr.index))
        if served in ("epoch", "class"):
            return (n,)
        one = self._client.get(np.empty(0, np.int64), logits=served == "logits")
        return n, one.schema.field(served).type.list_size

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        self._refuse()

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        self._refuse()

    def _refuse(self) -> NoReturn:
        msg = "embeddings are read only here: the job writes them; send it events (add_vertex, set_features, ...)"
        raise NotImplementedError(msg)

    @property
    def _client(self) -> Client:
        """The client of this process: connections do not survive a fork."""
        pid = os.getpid()
        if pid not in self._clients:
            self._clients[pid] = self._make()
        return self._clients[pid]

    def _served(self, attr: TensorAttr) -> str:
        if attr.group_name != self._group or attr.attr_name not in self._attrs:
            there = ", ".join(f"({self._group!r}, {name!r})" for name in self._attrs)
            msg = f"no tensor ({attr.group_name!r}, {attr.attr_name!r}); there is {there}"
            raise KeyError(msg)
        return self._attrs[attr.attr_name]

    def _count(self) -> int:
        if self._ids is not None:
            return len(self._ids)
        ids = self._client.all()["id"].to_numpy()
        return int(ids.max()) + 1 if len(ids) else 0

    def _vertices(self, index: Any) -> np.ndarray:
        """The ids of the nodes that an index means: numbers, a mask, a slice, one number, or None for all."""
        if _is_one(index):
            nodes = np.array([int(index)])
        elif index is None or isinstance(index, slice):
            nodes = np.arange(self._count())[index if index is not None else slice(None)]
        else:
            nodes = np.asarray(index.cpu() if isinstance(index, Tensor) else index)
            nodes = np.flatnonzero(nodes) if nodes.dtype == bool else nodes
        return nodes if self._ids is None else self._ids[nodes]

    def _columns(self, ids: np.ndarray, names: set[str]) -> dict[str, Tensor]:
        """These columns of the rows of ids, in their order."""
        distinct, places = np.unique(ids, return_inverse=True)
        asked = distinct if distinct.dtype.kind in "iu" else distinct.tolist()
        logits = bool(names & {"logits", "class"})
        few = len(distinct) <= self._client.ids_max
        table = self._client.get(asked, logits=logits) if few else self._client.all(logits=logits)
        strings = distinct.dtype.kind not in "iu"
        there = np.array(table["id"].to_pylist()) if strings and table.num_rows else table["id"].to_numpy()
        order = np.argsort(there, kind="stable")
        at = np.searchsorted(there, distinct, sorter=order)
        row = order[np.minimum(at, len(there) - 1)] if len(there) else np.zeros(len(distinct), np.int64)
        gone = there[row] != distinct if len(there) else np.ones(len(distinct), bool)
        if gone.any() and self._missing is None:
            shown = ", ".join(map(str, distinct[gone][:10].tolist()))
            msg = f"{int(gone.sum())} vertices have no row now: {shown}; give missing=0.0 to have rows of zeros"
            raise MissingVertexError(msg)
        return {name: self._tensor(table, name, row[places], gone[places]) for name in names}

    def _tensor(self, table: Any, name: str, rows: np.ndarray, gone: np.ndarray) -> Tensor:
        if name not in table.column_names:
            msg = f"{name}: the model has no head, or the server does not know it"
            raise KeyError(msg)
        column = table[name].combine_chunks()
        values = column.to_numpy(zero_copy_only=False) if name in ("epoch", "class") else _rows_of(column)
        found = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        found[~gone] = values[rows[~gone]]
        if gone.any():
            found[gone] = self._missing if values.ndim > 1 else -1
        return torch.from_numpy(found)


def _is_one(index: Any) -> bool:
    return isinstance(index, int | np.integer) or (isinstance(index, Tensor | np.ndarray) and index.ndim == 0)


def _rows_of(column: Any) -> np.ndarray:
    flat: np.ndarray = column.flatten().to_numpy()
    return flat.reshape(-1, column.type.list_size)
