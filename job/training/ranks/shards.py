"""Shards of a graph: what one rank has of it, and which rows it sends to the others and takes from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.job.training.ranks.whole import WholeGraph, rows_of

TENSORS, ABOUT = "tensors.safetensors", "shard.json"
_OF_EDGES = MessageEdges._fields[:4]


class HaloRows(NamedTuple):
    """The rows of a kind that a rank sends and takes, rank by rank.

    Shapes: places (sent,) int64, among the rank's own vertices; sends, takes: numbers of rows, for each rank
    """

    places: Tensor
    sends: list[int]
    takes: list[int]


@dataclass(frozen=True)
class Shard:
    """The vertices of a rank, all of their in-edges, and the rows that these need of other ranks.

    `src` of edges counts the rank's own vertices of the kind first, then those of other ranks (the halo), in the order
    of the ranks; `dst` counts its own.
    Shapes: numbers, by kind (n,) int64, in the whole graph; rows, by kind, tensors of n rows; names, by kind, ids that
        are strings; halos, by kind; edges, by relation
    """

    rank: int
    ranks: int
    kinds: tuple[str, ...]
    sources: list[int]  # the kind of each relation's sources
    numbers: list[Tensor]
    rows: list[dict[str, Tensor]]
    names: list[list[str] | None]
    halos: list[HaloRows]
    edges: list[MessageEdges]

    def save(self, folder: Path) -> None:
        """Write the shard into a new folder.

        Raises: OSError.
        """
        folder.mkdir()
        tensors = dict[str, Tensor]()
        for k in range(len(self.kinds)):
            tensors |= {f"rows.{k}.{name}": value.contiguous() for name, value in self.rows[k].items()}
            tensors |= {f"numbers.{k}": self.numbers[k], f"places.{k}": self.halos[k].places}
        for r, one in enumerate(self.edges):
            for name, value in zip(_OF_EDGES, one[:4], strict=True):
                tensors[f"edges.{r}.{name}"] = value.contiguous()
        save_file(tensors, folder / TENSORS)
        about = {
            "rank": self.rank,
            "ranks": self.ranks,
            "kinds": self.kinds,
            "sources": self.sources,
            "names": self.names,
            "sends": [one.sends for one in self.halos],
            "takes": [one.takes for one in self.halos],
            "targets": [one.targets for one in self.edges],
        }
        (folder / ABOUT).write_bytes(orjson.dumps(about))

    @staticmethod
    def load(folder: Path) -> Shard:
        """The inverse of `save`.

        Raises: OSError, SafetensorError.
        """
        about = orjson.loads((folder / ABOUT).read_bytes())
        tensors = load_file(folder / TENSORS)
        rows: list[dict[str, Tensor]] = [{} for _ in about["kinds"]]
        for name, value in tensors.items():
            what, number, *rest = name.split(".", 2)
            if what == "rows":
                rows[int(number)][rest[0]] = value
        halos = [
            HaloRows(tensors[f"places.{k}"], sends, takes)
            for k, (sends, takes) in enumerate(zip(about["sends"], about["takes"], strict=True))
        ]
        edges = [
            MessageEdges(**{name: tensors[f"edges.{r}.{name}"] for name in _OF_EDGES}, targets=targets)
            for r, targets in enumerate(about["targets"])
        ]
        numbers = [tensors[f"numbers.{k}"] for k in range(len(rows))]
        fixed = about["rank"], about["ranks"], tuple(about["kinds"]), about["sources"]
        return Shard(*fixed, numbers, rows, about["names"], halos, edges)


def shards_of(graph: WholeGraph, owners: Sequence[np.ndarray], ranks: int) -> Iterator[Shard]:
    """Yield the shards of the ranks in their order; `owners` has the rank of each vertex, by kind.

    Shapes: owners, by kind (n,) int32
    """
    locals_ = [_locals(one, ranks) for one in owners]
    halos = [_halos(graph, owners, locals_, rank) for rank in range(ranks)]
    for rank in range(ranks):
        yield _shard(graph, owners, locals_, halos, rank)


def _locals(owner: np.ndarray, ranks: int) -> np.ndarray:
    """Return the number of each vertex among those of its rank."""
    found = np.empty(len(owner), np.int64)
    for rank in range(ranks):
        own = np.flatnonzero(owner == rank)
        found[own] = np.arange(len(own))
    return found


def _halos(
    graph: WholeGraph, owners: Sequence[np.ndarray], locals_: Sequence[np.ndarray], rank: int
) -> list[np.ndarray]:
    """Return, by kind, the vertices of other ranks from which in-edges of this one's come, in the order of ranks."""
    wanted: list[list[np.ndarray]] = [[] for _ in owners]
    for (source, target), edges in zip(graph.ends, graph.edges, strict=True):
        src = edges.src.numpy()[owners[target][edges.dst.numpy()] == rank]
        wanted[source].append(np.unique(src[owners[source][src] != rank]))
    found = []
    for kind, parts in enumerate(wanted):
        every = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
        found.append(every[np.lexsort((locals_[kind][every], owners[kind][every]))])
    return found


def _shard(
    graph: WholeGraph,
    owners: Sequence[np.ndarray],
    locals_: Sequence[np.ndarray],
    halos: Sequence[Sequence[np.ndarray]],
    rank: int,
) -> Shard:
    ranks = len(halos)
    own = [np.flatnonzero(one == rank) for one in owners]
    places = [one.copy() for one in locals_]  # of sources, among those that this rank has rows of
    for kind, halo in enumerate(halos[rank]):
        places[kind][halo] = len(own[kind]) + np.arange(len(halo))
    plans = []
    for kind, owner in enumerate(owners):
        sent = [locals_[kind][of[kind][owner[of[kind]] == rank]] for of in halos]
        takes = np.bincount(owner[halos[rank][kind]], minlength=ranks).tolist()
        plans.append(HaloRows(torch.from_numpy(np.concatenate(sent)), [len(one) for one in sent], takes))
    edges = []
    for (source, target), of in zip(graph.ends, graph.edges, strict=True):
        here = of.chosen(torch.from_numpy(np.flatnonzero(owners[target][of.dst.numpy()] == rank)))
        src, dst = places[source][here.src.numpy()], locals_[target][here.dst.numpy()]
        edges.append(here._replace(src=torch.from_numpy(src), dst=torch.from_numpy(dst), targets=len(own[target])))
    numbers = [torch.from_numpy(one) for one in own]
    stores = list(zip(graph.stores, graph.counts, numbers, strict=True))
    rows = [{name: value[of] for name, value in rows_of(store, count).items()} for store, count, of in stores]
    names = [_names(store, of.numpy()) for store, _, of in stores]
    sources = [source for source, _ in graph.ends]
    return Shard(rank, ranks, graph.kinds, sources, numbers, rows, names, plans, edges)


def _names(store: Any, of: np.ndarray) -> list[str] | None:
    """Return the ids of some vertices that are strings; None where there are none."""
    given = store["id"] if "id" in store else None
    if given is None or isinstance(given, Tensor):
        return None
    return [str(one) for one in np.asarray(given, object)[of]]
