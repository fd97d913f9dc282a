"""Numbers of vertices by kind and of edges by relation, as `freshet size` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshet.gnn.any_plan import AnyPlan
from freshet.job.errors import UsageError
from freshet.job.size.miniature import GraphSize
from freshet.kinds import NO_MIRROR, Kinds, some_names
from freshet.partitioner.ids import INT

VERTICES, EDGES = "--vertices", "--edges"


def graph_size(
    plan: AnyPlan,
    vertices: Sequence[str],
    edges: Sequence[str],
    parts: int = 1,
    id_kind: str = INT,
    *,
    undirected: bool = False,
    edge_keys: str = "",
) -> GraphSize:
    """Return the size of a graph for this model: N, or KIND=N and RELATION=N for each kind and relation.

    Edges given as N alone are dealt evenly to the relations that events bring.
    Raises: UsageError for other names, missing ones, and more edges than there are pairs where they have no keys;
    KindsError where edges between two kinds are to be undirected.
    """
    kinds = plan.features.kinds
    if kinds is None:
        counts = (_sole(VERTICES, vertices, 1),), (_sole(EDGES, edges, 0),)
        return GraphSize(*counts, parts, id_kind, undirected, edge_keys)
    kinds.mirrors(undirected=undirected)
    of_vertices, of_edges = _by_kind(kinds, vertices), _by_relation(kinds, edges)
    if not edge_keys:
        _refuse_too_many(kinds, of_vertices, of_edges)
    return GraphSize(of_vertices, of_edges, parts, id_kind, undirected, edge_keys)


def _sole(option: str, given: Sequence[str], least: int) -> int:
    if len(given) != 1 or "=" in given[0]:
        msg = f"{option} {' '.join(given)}: the model has no kinds of vertices; give one number alone"
        raise UsageError(msg)
    return _number(option, given[0], given[0], least)


def _by_kind(kinds: Kinds, given: Sequence[str]) -> tuple[int, ...]:
    if not kinds.are_named:
        return (_sole(VERTICES, given, 1),)
    found = _by_name(VERTICES, given, "kinds", kinds.kind_codes, 1)
    _refuse_missing(VERTICES, [name for code, name in enumerate(kinds.names) if code not in found])
    return tuple(found[code] for code in range(len(kinds)))


def _by_relation(kinds: Kinds, given: Sequence[str]) -> tuple[int, ...]:
    brought = [number for number, one in enumerate(kinds.relations) if one.mirrors == NO_MIRROR]
    if len(given) == 1 and "=" not in given[0]:
        every = _number(EDGES, given[0], given[0], 0)
        ends = [every * k // len(brought) for k in range(len(brought) + 1)]
        found = {number: ends[k + 1] - ends[k] for k, number in enumerate(brought)}
    else:
        triples = {",".join(kinds.triple(one)): number for number, one in enumerate(kinds.relations)}
        names = {name: number for number, name in enumerate(kinds.relation_names)}
        found = _by_name(EDGES, given, "relations", names | triples, 0)
        for number in found:
            followed = kinds.relations[number].mirrors
            if followed != NO_MIRROR:
                msg = f"{EDGES} {kinds.relation_names[number]}=...: these follow {kinds.relation_names[followed]!r} by "
                raise UsageError(msg + "themselves; leave it out")
        _refuse_missing(EDGES, [kinds.relation_names[number] for number in brought if number not in found])
    return tuple(found.get(number, 0) for number in range(len(kinds.relations)))


def _by_name(option: str, given: Sequence[str], what: str, names: Mapping[str, int], least: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in given:
        name, is_named, number = one.rpartition("=")
        if not is_named or name not in names:
            msg = f"{option} {one}: expected NAME=N with one of the model's {what}: {some_names(list(names))}"
            raise UsageError(msg)
        if names[name] in found:
            msg = f"{option} {one}: {name} is given twice"
            raise UsageError(msg)
        found[names[name]] = _number(option, one, number, least)
    return found


def _number(option: str, given: str, number: str, least: int) -> int:
    if not (number.isascii() and number.isdigit() and int(number) >= least):
        msg = f"{option} {given}: expected a whole number from {least} on"
        raise UsageError(msg)
    return int(number)


def _refuse_missing(option: str, missing: Sequence[str]) -> None:
    if missing:
        msg = f"{option}: missing for {some_names(missing)}; give {option} {missing[0]}=N"
        raise UsageError(msg)


def _refuse_too_many(kinds: Kinds, vertices: Sequence[int], edges: Sequence[int]) -> None:
    for one, many, name in zip(kinds.relations, edges, kinds.relation_names, strict=True):
        sources, targets = vertices[one.source], vertices[one.target]
        if many > sources * targets:
            msg = f"{EDGES} {name}={many}: more than the {sources * targets} pairs of {sources} and {targets} vertices"
            raise UsageError(msg)
