"""Rows that a module with kinds learned for each id: found where its forward looks them up, or takes all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch.nn import Module

from freshet.gnn.kinds.learned import learned_weights
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.kinds.calling import ModuleCall
from freshet.gnn.pyg.kinds.convs.typed import may_read_numbers
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations
from freshet.gnn.pyg.steps import Weights, class_name
from freshet.kinds import NO_MIRROR, Kinds, Relation
from freshet.kinds_graph import KindsGraph

_ROWS_MAX = 41  # of a table in the last check; a prime, so that ids of the graph's vertices do not repeat in order
_STEP = 7


class Learned(NamedTuple):
    """Learned rows of one kind: the module's tables by name, each (ids, width) float32, and the ids.

    whole: the module reads all rows, as those of all vertices.
    """

    tables: dict[str, np.ndarray]
    ids: Sequence[Any]
    whole: bool

    @property
    def many(self) -> int:
        """Number of ids."""
        return len(self.ids)

    def vertices(self, wanted: int) -> int:
        """Return how many vertices of the kind a graph of the last check has."""
        return min(self.many, _ROWS_MAX) if self.whole else wanted

    def places(self, vertices: int) -> np.ndarray:
        """Return which row each vertex of such a graph has, (vertices,) int64."""
        numbers = np.arange(vertices, dtype=np.int64)
        return numbers if self.whole else (numbers * _STEP + 1) % min(self.many, _ROWS_MAX)

    def rows(self, vertices: int) -> np.ndarray:
        """Return the rows of those vertices side by side, (vertices, width) float32."""
        places = self.places(vertices)
        return np.concatenate([table[places] for table in self.tables.values()], axis=1)

    def declared(self, kind: str) -> tuple[dict[str, Any], Weights]:
        """Return the entry in model.json, and the tensors.

        Raises: ExportError for ids that are not all distinct, and all whole numbers or all strings.
        """
        try:
            weights = learned_weights(kind, self.ids, np.concatenate(list(self.tables.values()), axis=1))
        except ValueError as error:
            msg = f"ids of kind {kind!r}: {error}"
            raise ExportError(msg) from None
        rows = {name: table.shape[1] for name, table in self.tables.items()}
        ids = "string" if isinstance(self.ids[0], str) else "int"
        return {"rows": rows, "count": self.many, "ids": ids}, weights


def learned_of(ops: KindsOperations, kinds: Metadata, ids: Mapping[str, list[Any]]) -> dict[int, Learned]:
    """Return what a forward looks up, by kind, with the ids that are given; by default these are numbers of rows.

    Raises: ExportError for tables of one kind that have different numbers of rows, and ids that do not fit them.
    """
    found: dict[int, dict[str, np.ndarray]] = {}
    for name, table in ops.tables.items():
        found.setdefault(ops.kind[name], {})[name] = table.detach().cpu().float().numpy()
    made = {
        kind: Learned(tables, _ids_of(kinds.names[kind], tables, ids), kind in ops.whole)
        for kind, tables in found.items()
    }
    if unread := sorted(ids.keys() - {kinds.names[kind] for kind in made}):
        msg = f"ids: the module looks up no learned rows of kind {unread[0]!r}; kinds that have such are "
        raise ExportError(msg + (", ".join(repr(kinds.names[kind]) for kind in made) or "none"))
    return made


def _ids_of(kind: str, tables: Mapping[str, np.ndarray], given: Mapping[str, list[Any]]) -> Sequence[Any]:
    counts = {name: len(table) for name, table in tables.items()}
    if len(set(counts.values())) > 1:
        refuse(f"learned rows of kind {kind!r} are {counts}, expected as many of each: one for an id")
    (count,) = set(counts.values())
    ids = given.get(kind, range(count))
    if len(ids) != count:
        refuse(f"ids: {len(ids)} of kind {kind!r}, but {next(iter(counts))} has {count} rows: give the id of each row")
    return ids


def listed_ids(kind: Any, ids: Any) -> list[Any]:
    """Return the ids of an array of numpy, torch, pandas or Arrow, or of any sequence, as a list.

    Raises: ExportError for anything else.
    """
    for name in ("to_pylist", "tolist"):
        if hasattr(ids, name):
            ids = getattr(ids, name)()
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Sequence):
        msg = f"ids of kind {kind!r} are {type(ids).__name__}, expected a sequence: the id of each row, in their order"
        raise ExportError(msg)
    return list(ids)


def check_embedding(where: str, module: Any) -> None:
    """Refuse an Embedding that changes rows as it looks them up.

    Raises: ExportError
    """
    if module.max_norm is not None:
        msg = f"{where}: max_norm={module.max_norm} is not supported, since it changes rows as they are looked up. "
        raise ExportError(msg + "Nearest: max_norm=None, with the rows normalised once, by torch.renorm")


def is_embedding(module: Any) -> bool:
    """Return whether a module looks up rows."""
    return class_name(module).startswith("torch.nn.") and type(module).__name__ == "Embedding"


def shortened(module: Module, learned: Mapping[int, Learned]) -> Module:
    """Have the tables of a copy be no longer than the last check needs; returns it."""
    names = {name.partition(":")[0].removesuffix(".weight") for one in learned.values() for name in one.tables}
    for name, parameter in module.named_parameters():
        if name.removesuffix(".weight") in names and parameter.dim() in (2, 3):  # 3: those of each type of edges
            parameter.data = parameter.data[..., :_ROWS_MAX, :].clone()
    for name, part in module.named_modules():
        if name in names and may_read_numbers(part):
            part.in_channels_l = part.weight.shape[1]
            if any(one.whole for one in learned.values()):
                part.register_forward_pre_hook(_without_numbers, with_kwargs=True)
    return module


def _without_numbers(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Have a conv that reads the numbers of all vertices, which it may be given or not, read those that there are."""
    return ((None, *args[1:]), kwargs) if args else ((), kwargs | {"x": None})


IdsByKind = list[list[int] | list[str]]


@dataclass(frozen=True)
class StoredGraph:
    """A graph for `stats_from`.

    plain: returns (x, edge_index, edge_weight, edge_attr), for a module without kinds. of_kinds: returns the ids by
    kind, and the graph of these kinds and relations, as wide as it has rows; a kind without features has width 0.
    """

    plain: Callable[[], tuple[Any, ...]]
    of_kinds: Callable[[Kinds], tuple[IdsByKind, KindsGraph]]

    def given(self, kinds: Metadata, call: ModuleCall) -> tuple[Any, ...]:
        """Return the graph as `stats_from` takes it of a user, with the ids of vertices behind it."""
        ids, graph = self.of_kinds(_listed(kinds))
        rows = {kind: x for kind, x in zip(kinds.names, graph.x, strict=True) if x.shape[1]}
        numbers = {kind: np.array(of) for kind, of in zip(kinds.names, ids, strict=True) if _are_numbers(of)}
        ends = [np.stack([one.src, one.dst]) for one in graph.edges]
        if call.types is not None:
            types = np.repeat(np.arange(len(ends)), [one.shape[1] for one in ends])
            return (rows or numbers)[kinds.names[0]], np.concatenate(ends, axis=1), types
        weights = {relation: one.values.weight for relation, one in zip(kinds.relations, graph.edges, strict=True)}
        attributes = {
            relation: one.values.attr
            for relation, one in zip(kinds.relations, graph.edges, strict=True)
            if one.values.attr is not None
        }
        return rows, dict(zip(kinds.relations, ends, strict=True)), weights, attributes, numbers

    def refuse_other_ids(self, learned: Mapping[int, Learned], kinds: Metadata, call: ModuleCall) -> None:
        """See that vertices had their own learned rows when the module ran.

        Raises: ExportError for ids that are not the numbers of rows, or not all of them where all are read at once.
        """
        ids = self.of_kinds(_listed(kinds))[0] if learned else []
        for kind, one in learned.items():
            of = np.array(ids[kind])
            fits = _are_numbers(ids[kind]) and of.min() >= 0 and of.max() < one.many
            if not fits or ((one.whole or call.types is not None) and len(of) != one.many):
                name = kinds.names[kind]
                refuse(
                    f"stats_from: ids of kind {name!r} are not the numbers of its {one.many} learned rows; in Python "
                    "give export_model that graph as stats_from=data, a HeteroData"
                )


def _are_numbers(ids: list[int] | list[str]) -> bool:
    return bool(ids) and isinstance(ids[0], int)


def _listed(kinds: Metadata) -> Kinds:
    """The kinds and relations of a module; widths are the graph's."""
    relations = []
    for number, (_, name, _) in enumerate(kinds.relations):
        source, target = kinds.ends(number)
        of = kinds.mirrors[number]
        relations.append(Relation(source, name, target, mirrors=NO_MIRROR if of is None else of))
    return Kinds(tuple(kinds.stored), (0,) * len(kinds.names), tuple(relations))
