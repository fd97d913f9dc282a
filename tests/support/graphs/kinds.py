"""Small models with kinds of vertices, and random graphs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from freshet.gnn.declarations import DenseLayer
from freshet.gnn.kinds.declarations import AnyKindsLayer, DeclaredRelation
from freshet.gnn.kinds.learned import learned_weights
from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues

Spec = dict[str, Any]
# Made once: one takes ten times as long as a model.
_LAYERS, _RELATIONS = TypeAdapter(list[AnyKindsLayer]), TypeAdapter(list[DeclaredRelation])
_HEADS = TypeAdapter(dict[str, list[DenseLayer]])
VERTICES = 9  # ids of each kind in random events, which all kinds share
KINDS = {"user": 6, "item": 4, "shop": 5}


def text_id(number: int) -> str:
    """A string as the id of a vertex, some of them long."""
    return f"v{number}" if number % 3 else f"{'ü' * 9}{number}"


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
    learned: Mapping[str, Spec] | None = None,
    tables: Mapping[str, np.ndarray] | None = None,
    heads: Mapping[str, Sequence[Spec]] | None = None,
) -> KindsModel:
    """Return a model of these layers with random weights; `learned` rows are declared, and in `tables`."""
    fields = kinds_fields(layers, out, kinds, relations)
    fields |= {"heads": {of: list(head) for of, head in heads.items()}} if heads else {}
    weights = random_weights(fields, seed) | dict(tables or {})
    return build_kinds_model(**fields, learned=dict(learned or {}), weights=weights)


def random_weights(fields: Spec, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights of the right shapes."""
    rng = np.random.default_rng(seed)
    shapes = KindsModel.model_construct(**_parsed(fields)).tensors()
    return {name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}


def _parsed(fields: Spec) -> Spec:
    layers, relations = _LAYERS.validate_python(fields["layers"]), _RELATIONS.validate_python(fields["relations"])
    heads = _HEADS.validate_python(fields.get("heads", {}))
    return fields | {"layers": layers, "relations": relations, "heads": heads}


def many_relations(seed: int) -> KindsModel:
    """Return a model with two layers, and more relations within one kind than have a store each."""
    rng = np.random.default_rng(seed)
    kinds, many = {"user": 4, "item": 3}, int(rng.integers(9, 15))
    relations = [relation("user", f"of_{k}", "user") for k in range(many - 1)]
    relations.append(relation("user", "back", "user", mirrors=0))
    relations += [relation("user", "buys", "item"), relation("item", "rev_buys", "user", mirrors=many)]
    layers, widths = list[Spec](), dict(kinds)
    for out in (5, 2):
        aggr = str(rng.choice(["sum", "mean", "max"]))
        layers.append(sage_everywhere(widths, out, relations, aggr=aggr, root_weight=bool(rng.random() < 0.5)))
        widths = dict.fromkeys(kinds, out)
    return kinds_model(layers, ["user"], kinds, relations, seed)


def scaled_by_degrees(seed: int) -> KindsModel:
    """Return a model of one to three layers with several convs that scale by degrees into each kind."""
    rng, kinds = np.random.default_rng(seed), {"user": 4, "item": 3}
    ends = [("user", "user"), ("user", "user"), ("user", "user"), ("user", "item"), ("item", "user"), ("item", "item")]
    relations = [
        relation(source, f"r{k}", target, **({"mirrors": {1: 0, 4: 3}[k]} if k in (1, 4) else {}))
        for k, (source, target) in enumerate(ends)
    ]
    layers, widths, aggr = list[Spec](), dict(kinds), str(rng.choice(["sum", "mean", "max"]))
    for _ in range(rng.integers(1, 4)):
        convs = {
            k: _degree_conv(rng, widths[source], 4)
            if source == target and rng.random() < 0.8
            else sage(widths[source], widths[target], 4)
            for k, (source, target) in enumerate(ends)
        }
        layers.append(hetero(convs, aggr))
        widths = dict.fromkeys(kinds, 4)
    return kinds_model(layers, ["user"], kinds, relations, seed)


def _degree_conv(rng: np.random.Generator, width: int, out: int) -> Spec:
    """Return a conv that scales by the degrees of a relation within one kind, or adds self-loops to it."""
    kind = "propagation" if width == out and rng.random() < 0.3 else "gcn_conv"
    spec: Spec = {"type": kind, "in_channels": width, "out_channels": out, "normalize": bool(rng.random() < 0.8)}
    spec["add_self_loops"] = bool((spec["normalize"] or kind == "propagation") and rng.random() < 0.6)
    if kind == "gcn_conv":
        spec["improved"] = bool(rng.random() < 0.3)
    elif spec["add_self_loops"]:
        spec["self_weight"] = float(rng.choice([1.0, 0.5]))
    return spec | {"edge_weights": bool(rng.random() < 0.7), "aggr": str(rng.choice(["sum", "sum", "mean", "max"]))}


def random_kinds_graph(model: KindsModel, seed: int, *, vertices: int = 40, edges: int = 120) -> KindsGraph:
    """Return a graph for the model: kinds of different sizes, a hub by relation, isolated vertices, self-loops.

    A third of the edges have attributes of zeros.
    """
    rng = np.random.default_rng(seed)
    sizes = {kind: vertices - 7 * number for number, kind in enumerate(model.kinds)}
    widths = {kind: sum(parts.values()) for kind, parts in model.row_parts().items()}
    x = [rng.standard_normal((sizes[kind], width)).astype(np.float32) for kind, width in widths.items()]
    return KindsGraph(x, [_random_edges(one, sizes, rng, edges) for one in model.relations])


def _random_edges(
    relation: DeclaredRelation, sizes: Mapping[str, int], rng: np.random.Generator, edges: int
) -> RelationEdges:
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


def random_model_of_kinds(seed: int, *, strings: bool = False) -> KindsModel:
    """Return a model of one to three layers, with random kinds, relations, convs, groupings, norms and kept rows.

    Some kinds have learned rows, with features or without; `strings`: by ids as `text_id` makes them.
    """
    rng = np.random.default_rng(seed)
    kinds = dict(zip(["a", "b", "c"][: rng.integers(1, 4)], rng.integers(2, 9, 3).tolist(), strict=False))
    names, relations = list(kinds), list[Spec]()
    for number in range(rng.integers(2, 6)):
        relations.append(relation(*_ends(rng, names, number), edge_features=int(rng.integers(0, 2) * 2)))
    learned = _random_learned(seed, names)
    kept, layers = {f"{kind}0": width for kind, width in learned.items()}, list[Spec]()
    widths = dict(kinds)
    for kind, width in learned.items():
        kinds[kind] *= seed % 4 != 0  # without features
        widths[kind], of = kinds[kind] + width, [*(["."] if kinds[kind] else []), f"{kind}0"]
        layers.append(by_kind(**{kind: [{"type": "join", "of": of}]}))
    for _ in range(rng.integers(1, 4)):
        layers.append(by_kind(**{kind: _random_rows(rng, widths, kind, kept) for kind in widths}))
        there = [i for i, one in enumerate(relations) if one["source"] in widths and one["target"] in widths]
        convs, out, aggr = dict[int, Spec](), int(rng.integers(1, 5) * 2), str(rng.choice(GROUPINGS))
        for number in there:
            if rng.random() < 0.8 or not convs:
                convs[number] = _random_conv(rng, relations[number], widths, out)
        if not convs:
            break
        layers.append(hetero(convs, aggr))
        reached = [relations[number]["target"] for number in convs]
        widths = {kind: out * (reached.count(kind) if aggr == "cat" else 1) for kind in kinds if kind in reached}
    layers.append(by_kind(**{kind: _random_rows(rng, widths, kind, kept) for kind in widths}))
    read = {conv["relation"] for one in layers for conv in one.get("convs", []) if conv["conv"].get("edge_channels")}
    for number, one in enumerate(relations):
        one["edge_features"] *= number in read
    returned = [kind for kind in widths if rng.random() < 0.6] or list(widths)[:1]
    declared, tables = dict[str, Spec](), dict[str, np.ndarray]()
    for kind, width in learned.items():
        ids = [text_id(one) if strings else one for one in rng.permutation(VERTICES)[:4].tolist()]
        declared[kind] = {"rows": {f"{kind}0": width}, "count": len(ids), "ids": "string" if strings else "int"}
        tables |= learned_weights(kind, ids, rng.standard_normal((len(ids), width)).astype(np.float32))
    return kinds_model(layers, returned, kinds, relations, seed, declared, tables)


def _random_learned(seed: int, kinds: Sequence[str]) -> dict[str, int]:
    """Return the kinds that have learned rows, and how wide these are."""
    rng = np.random.default_rng([seed, 1])
    return {kind: int(rng.integers(1, 5)) for kind in kinds if rng.random() < 0.6} if seed % 2 == 0 else {}


GROUPINGS = ["sum", "mean", "min", "max", "mul", "cat"]


def _ends(rng: np.random.Generator, kinds: Sequence[str], number: int) -> tuple[str, str, str]:
    return str(rng.choice(kinds)), f"r{number}", str(rng.choice(kinds))


def _random_rows(rng: np.random.Generator, widths: dict[str, int], kind: str, kept: dict[str, int]) -> list[Spec]:
    """Return layers of a row, and change the width of the kind; rows that are kept have the kind in their names."""
    layers: list[Spec] = []
    for _ in range(rng.integers(0, 4)):
        choice, width = rng.integers(0, 5), widths[kind]
        if choice == 0:
            widths[kind] = int(rng.integers(1, 9))
            layers.append({"type": "linear", "in_channels": width, "out_channels": widths[kind]})
        elif choice == 1:
            layers.append({"type": "layer_norm", "channels": width})
        elif choice == 2:
            kept[f"{kind}{len(kept)}"] = width
            layers.append({"type": "keep", "name": list(kept)[-1]})
        elif choice == 3 and (of := [name for name in kept if name.startswith(kind)]):
            name = str(rng.choice(of))
            operation = "sum" if kept[name] == width else "cat"
            widths[kind] = width if operation == "sum" else width + kept[name]
            layers.append({"type": "join", "operation": operation, "of": [name, "."]})
        else:
            layers.append({"type": str(rng.choice(["relu", "elu", "tanh"]))})
    return layers


def _random_conv(rng: np.random.Generator, one: Spec, widths: Mapping[str, int], out: int) -> Spec:
    width, target = widths[one["source"]], widths[one["target"]]
    kinds = ["sage_conv", "graph_conv", "gat_conv", "gatv2_conv", "transformer_conv"]
    attributes = {"edge_channels": one["edge_features"]} if one["edge_features"] else {}
    if width == target:
        kinds += ["gin_conv", "edge_conv", *(["gine_conv"] if attributes else [])]
    if one["source"] == one["target"]:
        kinds.append("gcn_conv")
    kind = str(rng.choice(kinds))
    spec: Spec = {"type": kind, "in_channels": width, "out_channels": out}
    if kind == "gcn_conv":
        return _degree_conv(rng, width, out)
    if kind in ("gin_conv", "edge_conv", "gine_conv"):
        read = 2 * width if kind == "edge_conv" else width
        spec["nn"] = [{"type": "linear", "in_channels": read, "out_channels": out}, {"type": "tanh"}]
        return spec | (attributes if kind == "gine_conv" else {})
    spec["target_channels"] = target
    if kind in ("sage_conv", "graph_conv"):
        spec["aggr"] = str(rng.choice(["sum", "mean", "max"]))
        return spec | ({"root_weight": bool(rng.random() < 0.7)} if kind == "sage_conv" else {})
    spec |= {"heads": int(rng.integers(1, 3))} | attributes
    if kind != "transformer_conv":
        spec |= {"add_self_loops": bool(one["source"] == one["target"] and rng.random() < 0.5)}
        spec |= {"residual": bool(rng.random() < 0.5)}
    return spec
