"""Graphs of `stats_from` that are read once the kinds of the module are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.kinds.calling import ModuleCall
from freshet.gnn.pyg.kinds.looking_up import Learned
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.kinds import NO_MIRROR, Kinds, Relation
from freshet.kinds_graph import KindsGraph

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
