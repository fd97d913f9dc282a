"""Kinds of vertices and relations between them: those that are given, or that the module says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Module
from torch_geometric.nn import HeteroConv

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.places import keys_read
from freshet.gnn.pyg.steps import class_name
from freshet.kinds import NO_NAME
from freshet.kinds_graph import KindsGraph

Relation = tuple[str, str, str]
"""Source kind, type, target kind: what PyG calls an edge type."""

_HOW = "say which there are: metadata=(kinds, relations), as data.metadata() gives them"


class Metadata(NamedTuple):
    """The closed list of kinds and relations that a module reads, in the order of the model.

    mirrors: for each relation the number of the one whose edges it follows, reversed; None for one of its own.
    """

    names: list[str]
    relations: list[Relation]
    mirrors: list[int | None]

    @property
    def are_named(self) -> bool:
        """False for a module without kinds, whose one kind and relation have empty names."""
        return self.names != [NO_NAME]

    @property
    def stored(self) -> list[str]:
        """The names of the kinds in the model: one kind alone has none."""
        return [NO_NAME] if len(self.names) == 1 else self.names

    def ends(self, relation: int) -> tuple[int, int]:
        """Return the numbers of its source and target kind."""
        source, _, target = self.relations[relation]
        return self.names.index(source), self.names.index(target)

    def named(self, relation: int) -> str:
        """Return a relation for messages, e.g. ('user', 'buys', 'item')."""
        return str(self.relations[relation])


WITHOUT_KINDS = Metadata([NO_NAME], [(NO_NAME, NO_NAME, NO_NAME)], [None])
"""The metadata of a module without kinds: one kind and one relation."""


class Parts(NamedTuple):
    """Numbers of a module's kinds and relations that its model has."""

    kinds: list[int]
    relations: list[int]

    def of(self, graph: KindsGraph) -> KindsGraph:
        """Return what the model reads of a graph that the module takes."""
        return KindsGraph([graph.x[k] for k in self.kinds], [graph.edges[j] for j in self.relations])


def kinds_of(module: Module, metadata: Any, mirrors: Mapping[Any, Any] | None) -> Metadata:
    """Return the kinds and relations of a module: those of `metadata`, or what HeteroConv and to_hetero say.

    Raises: ExportError where none says them, or where they or the mirrors do not fit each other.
    """
    said = _said_by(module)
    names, relations = said if metadata is None else _checked(metadata)
    if missing := [one for one in said[1] if one not in relations]:
        msg = f"metadata has no relation {missing[0]}, which the module has a conv for: give it with all that there are"
        raise ExportError(msg)
    if not names or not relations:
        refuse(f"{type(module).__name__} does not say its kinds of vertices and edges: {_HOW}")
    return Metadata(names, relations, mirrors_of(relations, mirrors))


def _checked(metadata: Any) -> tuple[list[str], list[Relation]]:
    try:
        kinds, relations = metadata
        names, of = [str(one) for one in kinds], [tuple(one) for one in relations]
    except (TypeError, ValueError):
        msg = (
            f"metadata is {metadata!r}, expected (kinds, relations), as (['user', 'item'], [('user', 'buys', 'item')])"
        )
        raise ExportError(msg) from None
    for relation in of:
        if len(relation) != 3 or not all(isinstance(part, str) and part for part in relation):
            refuse(f"metadata: relation {relation!r}, expected (source kind, type, target kind)")
        if not {relation[0], relation[2]} <= set(names):
            refuse(f"metadata: relation {relation} has an end that is none of the kinds {', '.join(names)}")
    for what, listed in (("kinds", names), ("relations", of)):
        if len(set(listed)) != len(listed):
            refuse(f"metadata: {what} are {listed}, expected each once")
    return names, of


def _said_by(module: Module) -> tuple[list[str], list[Relation]]:
    """Kinds and relations in the order in which the module's parts say them."""
    names, relations = dict[str, None](), dict[Relation, None]()
    for part in module.modules():
        if isinstance(part, HeteroConv):
            relations |= dict.fromkeys(tuple(key) for key in part.convs.keys())
        elif isinstance(part, torch.fx.GraphModule):
            for key in keys_read(part.graph.nodes):
                if isinstance(key, str):
                    names[key] = None
                else:
                    relations[key] = None
        elif class_name(part) == "torch_geometric.nn.HGTConv":
            names |= dict.fromkeys(part.node_types)
            relations |= dict.fromkeys(part.edge_types)
        elif class_name(part) == "torch_geometric.nn.HANConv":
            names |= dict.fromkeys(part.metadata[0])
            relations |= dict.fromkeys(part.metadata[1])
    for source, _, target in relations:
        names |= {source: None, target: None}
    return list(names), list(relations)


def mirrors_of(relations: Sequence[Relation], given: Mapping[Any, Any] | None) -> list[int | None]:
    """Return for each relation the number of the one that it mirrors: as given, else `rev_X` mirrors X.

    Raises: ExportError for one that there is not, that does not fit, or that follows a mirror itself.
    """
    if given is None:
        return [_reversed(relations, relation) for relation in relations]
    if not isinstance(given, Mapping):
        refuse(f"mirrors is {given!r}, expected the type of a relation for each that follows it, as {{'rev_X': 'X'}}")
    found: list[int | None] = [None] * len(relations)
    for mirror, of in given.items():
        for number in _numbers("mirrors", relations, mirror):
            source, _, target = relations[number]
            fits = [one for one in _numbers("mirrors", relations, of) if _ends(relations[one]) == (target, source)]
            if len(fits) != 1:
                refuse(f"mirrors: {relations[number]} does not run between the ends of {of!r} the other way round")
            if fits[0] == number:
                refuse(f"mirrors: {mirror!r} follows itself, which is what the job's --undirected does")
            found[number] = fits[0]
    for number, one in enumerate(found):
        if one is not None and found[one] is not None:
            refuse(f"mirrors: {relations[number]} follows {relations[one]}, which follows another one itself")
    return found


def _ends(relation: Relation) -> tuple[str, str]:
    return relation[0], relation[2]


def _numbers(what: str, relations: Sequence[Relation], name: Any) -> list[int]:
    """The relations of that type, or the one of that (source, type, target)."""
    ends = tuple(name) if isinstance(name, tuple | list) else None
    found = [i for i, one in enumerate(relations) if name == one[1] or ends == one]
    if not found:
        refuse(f"{what}: there is no relation {name!r}; there are {', '.join(map(str, relations))}")
    return found


def _reversed(relations: Sequence[Relation], relation: Relation) -> int | None:
    source, name, target = relation
    if not name.startswith("rev_"):
        return None
    of = (target, name.removeprefix("rev_"), source)
    if of not in relations or _reversed(relations, of) is not None:
        return None
    return relations.index(of)
