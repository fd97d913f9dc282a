"""`freshet.loader`: batches of the labelled vertices of a graph, with their neighbourhoods."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader

from freshet.errors import InputError
from freshet.job.training.sampler import Fanouts, NeighborSampler


def loader(
    data: Data | HeteroData,
    num_neighbors: Fanouts | NeighborSampler,
    batch_size: int,
    mask: str | Tensor | None = "train_mask",
    kind: str | None = None,
    *,
    seed: int | None = None,
    **options: Any,
) -> NodeLoader:
    """Return PyTorch Geometric's `NodeLoader` over some vertices, with samples of `freshet.NeighborSampler`.

    The first `batch_size` vertices of a batch are its seeds. Ids that are strings come along, which `NodeLoader` alone
    does not take.

    `num_neighbors`: as in `freshet.NeighborSampler`, or one, so that several loaders share its edges.
    `mask`: the seeds: the name of a mask, a mask, numbers of vertices, or None for all.
    `kind`: the kind of the seeds; needed where the data has several.
    `seed`: also of `shuffle`. `options`: others of `NodeLoader`, such as `shuffle` and `num_workers`.

    Raises: InputError for a mask without a vertex, one that is not there, or an unknown kind; and as NeighborSampler.
    """
    store, where = _store(data, kind)
    nodes = _seeds(store, mask, where)
    sampler = num_neighbors
    if not isinstance(sampler, NeighborSampler):
        sampler = NeighborSampler(data, sampler, seed=seed)
    if seed is not None and options.get("generator") is None:
        options["generator"] = torch.Generator().manual_seed(seed)
    without, names = _without_names(data)
    if names:
        options["transform"] = _Naming(names, options.get("transform"))
    input_nodes = nodes if isinstance(data, Data) else (kind or data.node_types[0], nodes)
    return NodeLoader(without, node_sampler=sampler, input_nodes=input_nodes, batch_size=batch_size, **options)


def _store(data: Data | HeteroData, kind: str | None) -> tuple[Any, str]:
    """Return the store of the seeds, and what messages call it."""
    if isinstance(data, Data):
        if kind:
            msg = f"kind: the graph has no kinds of vertices; leave it out, got {kind!r}"
            raise InputError(msg)
        return data, "data"
    there = ", ".join(data.node_types)
    if kind is None and len(data.node_types) == 1:
        kind = data.node_types[0]
    if kind not in data.node_types:
        msg = f"kind: expected one of {there}, got {kind!r}"
        raise InputError(msg)
    return data[kind], f"data[{kind!r}]"


def _seeds(store: Any, mask: str | Tensor | None, where: str) -> Tensor:
    """Return the numbers of the seeds, (n,) int64.

    Raises: InputError where there are none.
    """
    name = f"{where}.{mask}" if isinstance(mask, str) else "mask"
    if mask is None:
        nodes = torch.arange(store.num_nodes)
    else:
        if isinstance(mask, str) and mask not in store:
            msg = f"{name}: missing; freshet.labels sets train_mask and val_mask"
            raise InputError(msg)
        nodes = store[mask] if isinstance(mask, str) else mask
        if nodes.dtype == torch.bool:
            if len(nodes) != store.num_nodes:
                msg = f"{name}: expected {store.num_nodes:,}, one for each vertex, got {len(nodes):,}"
                raise InputError(msg)
            nodes = nodes.nonzero().view(-1)
    if not len(nodes):
        msg = f"{name}: no vertex, so there is no batch; expected one at least"
        raise InputError(msg)
    if int(nodes.min()) < 0 or int(nodes.max()) >= store.num_nodes:
        msg = f"{name}: expected vertices from 0 to {store.num_nodes - 1}, got {int(nodes.min())} to {int(nodes.max())}"
        raise InputError(msg)
    return nodes


def _without_names(data: Data | HeteroData) -> tuple[Data | HeteroData, dict[str | None, np.ndarray]]:
    """Return the data without ids that are strings, and these by kind."""
    stores = {None: data} if isinstance(data, Data) else {kind: data[kind] for kind in data.node_types}
    names = {
        kind: np.asarray(store["id"])
        for kind, store in stores.items()
        if "id" in store and not isinstance(store["id"], Tensor)
    }
    if names:
        data = copy.copy(data)
        for kind in names:
            del (data if kind is None else data[kind])["id"]
    return data, names


class _Naming:
    """A transform of a batch: gives it the ids that are strings, then does what the user wants."""

    def __init__(self, names: dict[str | None, np.ndarray], then: Callable[[Any], Any] | None) -> None:
        self._names, self._then = names, then

    def __call__(self, batch: Any) -> Any:
        for kind, names in self._names.items():
            store = batch if kind is None else batch[kind]
            store["id"] = names[store["n_id"].numpy()]
        return batch if self._then is None else self._then(batch)
