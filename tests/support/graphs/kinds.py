"""Small models with kinds of vertices, and random graphs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from freshet.gnn.kinds.declarations import AnyKindsLayer, Relation
from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.schema import WEIGHT, EdgeValues, KindsGraph, RelationEdges

Spec = dict[str, Any]
KINDS = {"user": 6, "item": 4, "shop": 5}


def relation(source: str, name: str, target: str, **more: Any) -> Spec:
    return {"source": source, "type": name, "target": target, **more}


RELATIONS = [
    relation("user", "buys", "item"),
    relation("item", "rev_buys", "user", mirrors=0),
    relation("shop", "sells", "item"),
    relation("item", "rev_sells", "shop", mirrors=2),
    relation("user", "follows", "user"),
]


def sage(width: int, target: int, out: int, **more: Any) -> Spec:
    return {"type": "sage_conv", "in_channels": width, "target_channels": target, "out_channels": out, **more}


def hetero(convs: Mapping[int, Spec], aggr: str = "sum") -> Spec:
    listed = [{"relation": number, "conv": conv} for number, conv in convs.items()]
    return {"type": "hetero_conv", "aggr": aggr, "convs": listed}


def by_kind(**layers: Sequence[Spec]) -> Spec:
    return {"type": "by_kind", "layers": {kind: list(found) for kind, found in layers.items()}}


def sage_everywhere(
    widths: Mapping[str, int], out: int, relations: Sequence[Spec] = RELATIONS, group: str = "sum", **more: Any
) -> Spec:
    convs = {
        number: sage(widths[one["source"]], widths[one["target"]], out, **more) for number, one in enumerate(relations)
    }
    return hetero(convs, group)


def kinds_fields(
    layers: Sequence[Spec],
    out: Sequence[str],
    kinds: Mapping[str, int] | None = None,
    relations: Sequence[Spec] | None = None,
) -> Spec:
    """Return the fields of a model, as model.json has them."""
    kinds, relations = KINDS if kinds is None else kinds, RELATIONS if relations is None else relations
    return {
        "version": 2,
        "kinds": dict(kinds),
        "relations": list(relations),
        "layers": list(layers),
        "out": list(out),
    }


def kinds_model(
    layers: Sequence[Spec],
    out: Sequence[str],
    kinds: Mapping[str, int] | None = None,
    relations: Sequence[Spec] | None = None,
    seed: int = 0,
) -> KindsModel:
    """Return a model of these layers with random weights."""
    fields = kinds_fields(layers, out, kinds, relations)
    return build_kinds_model(**fields, weights=random_weights(fields, seed))


def random_weights(fields: Spec, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights of the right shapes."""
    rng = np.random.default_rng(seed)
    shapes = KindsModel.model_construct(**_parsed(fields)).tensors()
    return {name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}


def _parsed(fields: Spec) -> Spec:
    layers = TypeAdapter(list[AnyKindsLayer]).validate_python(fields["layers"])
    return fields | {"layers": layers, "relations": TypeAdapter(list[Relation]).validate_python(fields["relations"])}


def random_kinds_graph(model: KindsModel, seed: int, *, vertices: int = 40, edges: int = 120) -> KindsGraph:
    """Return a graph for the model: kinds of different sizes, a hub by relation, isolated vertices, self-loops.

    A third of the edges have attributes of zeros.
    """
    rng = np.random.default_rng(seed)
    sizes = {kind: vertices - 7 * number for number, kind in enumerate(model.kinds)}
    x = [rng.standard_normal((sizes[kind], width)).astype(np.float32) for kind, width in model.kinds.items()]
    return KindsGraph(x, [_random_edges(one, sizes, rng, edges) for one in model.relations])


def _random_edges(relation: Relation, sizes: Mapping[str, int], rng: np.random.Generator, edges: int) -> RelationEdges:
    live = [max(1, sizes[kind] - sizes[kind] // 5) for kind in (relation.source, relation.target)]
    src, dst = (rng.integers(0, count, edges) for count in live)
    dst[: edges // 8] = 0
    if relation.source == relation.target:
        src[: edges // 10] = dst[edges // 10 : 2 * (edges // 10)] = src[edges // 10 : 2 * (edges // 10)]
    pairs = np.unique(src * sizes[relation.target] + dst)
    rng.shuffle(pairs)
    src, dst = pairs // sizes[relation.target], pairs % sizes[relation.target]
    attr = (
        rng.standard_normal((len(src), relation.edge_features)).astype(np.float32) if relation.edge_features else None
    )
    if attr is not None:
        attr[::3] = 0
    weight = rng.uniform(0.0, 2.0, len(src)).astype(np.float32)
    return RelationEdges(src, dst, EdgeValues(len(src), {WEIGHT: weight}, attr))
