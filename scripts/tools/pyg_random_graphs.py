"""Holds models that random modules were exported as against these modules, on graphs unlike the export's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.oracles import kinds as kinds_oracle
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.pyg.check import off
from freshet.gnn.readout import Readouts
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues, Graph
from scripts.tools.pyg_example_kinds import compared as streamed_by_kind
from scripts.tools.pyg_example_kinds import kinds_named
from scripts.tools.pyg_examples import compared as streamed
from scripts.tools.pyg_random_programs import Source
from scripts.tools.pyg_random_tables import FEATURES

EDGE_FEATURES = 3
TOLERANCE = 1e-4
_SIZES = ((1, 0, 1.0), (2, 3, 1.0), (3, 9, 100.0), (7, 49, 1e-3), (50, 300, 1.0), (5000, 9999, 1.0))
_ROUNDING, _ROUNDINGS = 2.0**-24, 3
_MOVED_MIN = 0.01  # of a value: one that roundings move by more has no digits in float32
Found = Iterator[tuple[str, float]]


class Given(NamedTuple):
    """A graph as modules take it, by kind and by relation, with what is said of it. Edges are (2, n)."""

    about: str
    x: dict[str, np.ndarray]
    edges: dict[Any, np.ndarray]
    weights: dict[Any, np.ndarray]
    attributes: dict[Any, np.ndarray]


def run(
    call: str, names: Mapping[str, Any], given: Given, *, typed: bool = False, dtype: torch.dtype = torch.float64
) -> Any:
    """Return what a module gives, in float64 by default: rows, or those of each kind."""
    x = {kind: torch.from_numpy(rows).to(dtype) for kind, rows in given.x.items()}
    edges = {one: torch.from_numpy(of) for one, of in given.edges.items()}
    weights = {one: torch.from_numpy(of).to(dtype) for one, of in given.weights.items()}
    attributes = {one: torch.from_numpy(of).to(dtype) for one, of in given.attributes.items()}
    types = [torch.full((one.shape[1],), number) for number, one in enumerate(edges.values())]
    dicts = {"x_dict": x, "edge_index_dict": edges, "edge_weight_dict": weights, "edge_attr_dict": attributes}
    plain = {"x": next(iter(x.values())), "edge_index": torch.cat([*edges.values()], 1)}
    plain |= {"edge_weight": torch.cat([*weights.values()]), "edge_attr": torch.cat([*attributes.values()])}
    dicts |= {f"{name}_edge_index": of for (_, name, _), of in edges.items() if name}
    one = plain | ({"edge_type": torch.cat(types)} if typed else {})
    torch.set_default_dtype(dtype)  # of tensors that a forward makes
    try:
        with torch.no_grad():
            made = eval(call, {**names, **dicts, **one, "Data": Data})
    finally:
        torch.set_default_dtype(torch.float32)
    if isinstance(made, dict):
        return {kind: rows.numpy() for kind, rows in made.items() if rows is not None}
    return made.numpy()


def small(source: Source) -> Given:
    """Return a small graph, on which a module is tried."""
    return _drawn(source, np.random.default_rng(1), 23, 60, 1.0)


def graphs(source: Source, seed: int) -> Iterator[Given]:
    """Yield graphs with what is said of them."""
    rng = np.random.default_rng(10_000 + seed)
    for n, edges, scale in _SIZES:
        scale = float(scale if n == 1 else rng.choice((1e-3, 1.0, 30.0, 1e3)))
        one = _drawn(source, rng, n, edges, scale)
        yield one
        if n in (3, 50):
            yield one._replace(about=f"{n} vertices, features 0", x={kind: 0 * x for kind, x in one.x.items()})
            x = {kind: rng.integers(-1, 2, rows.shape).astype(np.float32) for kind, rows in one.x.items()}
            for rows in x.values():
                rows[::3] = 0
            kept = _kept(one._replace(x=x), lambda edges: edges[1] % 2 == 0)
            yield kept._replace(about=f"{n} vertices, half of them without in-edges, features -1, 0 and 1")
            for number in range(len(one.edges) if len(one.edges) > 1 else 0):
                yield _without(one, {number})._replace(about=f"{n} vertices, no edges of relation {number}")
            yield _without(one, set(range(len(one.edges))))._replace(about=f"{n} vertices, no edges")


def _drawn(source: Source, rng: np.random.Generator, n: int, many: int, scale: float) -> Given:
    """Return a random graph of about n vertices of each kind; a relation rev_X has the edges of X turned."""
    kinds = source.kinds or {"": FEATURES}
    relations = source.relations or [("", "", "")]
    sizes = {kind: max(1, n - 2 * number) for number, kind in enumerate(kinds)}
    x = {
        kind: rng.standard_normal((sizes[kind], width)).astype("f") * np.float32(scale) for kind, width in kinds.items()
    }
    edges, weights, attributes = dict[Any, np.ndarray](), dict[Any, np.ndarray](), dict[Any, np.ndarray]()
    for one in relations:
        first = one[2], one[1].removeprefix("rev_"), one[0]
        if first != one and first in edges and one[1].startswith("rev_"):
            edges[one], weights[one], attributes[one] = edges[first][::-1].copy(), weights[first], attributes[first]
            continue
        targets = sizes[one[2]]
        every = sizes[one[0]] * targets
        pairs = np.unique(rng.integers(every, size=many)) if many < every else np.arange(every if many else 0)
        edges[one] = np.stack([pairs // targets, pairs % targets]).astype(np.int64)
        weights[one] = rng.uniform(0.25, 2, len(pairs)).astype(np.float32)
        attributes[one] = rng.standard_normal((len(pairs), EDGE_FEATURES)).astype(np.float32)
    return Given(f"{n} vertices, {many} edges, features of {scale:g}", x, edges, weights, attributes)


def _kept(given: Given, of: Any) -> Given:
    keep = {one: of(edges) for one, edges in given.edges.items()}
    mirrored = {one: (one[2], one[1].removeprefix("rev_"), one[0]) for one in keep}
    keep |= {one: keep[of] for one, of in mirrored.items() if of != one and of in keep and one[1].startswith("rev_")}
    return given._replace(
        edges={one: edges[:, keep[one]] for one, edges in given.edges.items()},
        weights={one: weights[keep[one]] for one, weights in given.weights.items()},
        attributes={one: attributes[keep[one]] for one, attributes in given.attributes.items()},
    )


def _without(given: Given, numbers: set[int]) -> Given:
    named = [one for number, one in enumerate(given.edges) if number in numbers]
    named += [(target, f"rev_{name}", source) for source, name, target in named]
    named += [(target, name.removeprefix("rev_"), source) for source, name, target in named if "rev_" in name]
    none = given._replace(
        edges={one: edges[:, :0] if one in named else edges for one, edges in given.edges.items()},
        weights={one: of[:0] if one in named else of for one, of in given.weights.items()},
        attributes={one: of[:0] if one in named else of for one, of in given.attributes.items()},
    )
    return none


def apart(source: Source, names: Mapping[str, Any], model: Model | KindsModel, seed: int) -> Found:
    """Yield how far a model is off its module on graphs, with what is said of these, where the module runs."""
    calls = [one for one in (source.call, source.logits) if one]
    for given in graphs(source, seed):
        try:
            wanted = [run(call, names, given, typed=source.typed) for call in calls]
        except Exception:  # whatever it is, there is nothing to compare
            continue
        for call, want, got in zip(calls, wanted, _ours(model, given), strict=False):
            about = given.about if call is source.call else f"logits, {given.about}"
            yield from _apart(about, want, got, partial(_again, source, call, names, given))


def _again(source: Source, call: str, names: Mapping[str, Any], given: Given) -> Iterator[Any]:
    """Yield what a module gives in float32, and in float64 for weights and features that are one rounding away."""
    with suppress(Exception):  # it need not run in float32
        module = deepcopy(names["module"]).float()
        yield run(call, {**names, "module": module}, given, typed=source.typed, dtype=torch.float32)
    rng = torch.Generator().manual_seed(0)
    for _ in range(_ROUNDINGS):
        module = deepcopy(names["module"])
        with torch.no_grad():
            for one in module.parameters():
                one.mul_(1 + _ROUNDING * torch.randn(one.shape, generator=rng))
        x = {
            kind: (rows * (1 + _ROUNDING * torch.randn(rows.shape, generator=rng).numpy())).astype(np.float64)
            for kind, rows in given.x.items()
        }
        yield run(call, {**names, "module": module}, given._replace(x=x), typed=source.typed)


def _ours(model: Model | KindsModel, given: Given) -> tuple[dict[str, Scaled], dict[str, Scaled]]:
    """Return a model's rows and logits by kind."""
    if isinstance(model, Model):
        (x,), edges = given.x.values(), np.concatenate([*given.edges.values()], axis=1)
        many, columns = edges.shape[1], np.eye(model.features.types, dtype=np.float32)
        types = np.repeat(np.arange(len(given.edges)), [one.shape[1] for one in given.edges.values()])
        attr = columns[types] if model.type_columns else np.zeros((many, 0), np.float32)
        if model.features.given_edge_width:
            attr = np.concatenate([attr, *given.attributes.values()], axis=1)
        weights = np.concatenate([*given.weights.values()])
        graph = Graph(x, edges[0], edges[1], EdgeValues(many, {WEIGHT: weights}, attr if attr.shape[1] else None))
        rows = own_scale.forward(model, graph, tolerance=TOLERANCE)
        return {"": rows}, {"": own_scale.logits(model, rows, tolerance=TOLERANCE)} if model.head else {}
    ends = list[RelationEdges]()
    names = kinds_named(model, list(given.x), list(given.edges))
    for one in model.relations:
        key: Any = names[one.source], one.type, names[one.target]
        turned = key not in given.edges  # of a module without relations, which turns its edges
        key = next(iter(given.edges)) if turned else key
        src, dst = given.edges[key][::-1] if turned and one.mirrors is not None else given.edges[key]
        values = EdgeValues(
            len(src), {WEIGHT: given.weights[key]}, given.attributes[key] if one.edge_features else None
        )
        ends.append(RelationEdges(src, dst, values))
    graph_of = KindsGraph([given.x[names[kind]] for kind in model.kinds], ends)
    by_kind = kinds_oracle.forward(model, graph_of, tolerance=TOLERANCE)
    made = kinds_oracle.logits(model, by_kind, tolerance=TOLERANCE)
    headed = [kind for kind in model.out if kind in model.heads]
    return by_kind, dict(zip(headed, made, strict=True))


def _apart(about: str, want: Any, got: dict[str, Scaled], again: Callable[[], Iterator[Any]]) -> Found:
    wanted = want if isinstance(want, dict) else dict.fromkeys(got, want)
    if set(wanted) != set(got) and len(got) > 1:
        yield f"{about}: rows of {sorted(wanted)}, got those of {sorted(got)}", float("inf")
        return
    for kind, made in wanted.items():
        ours = got.get(kind, next(iter(got.values())))
        rows = made.reshape(-1, 1) if made.ndim < 2 else made
        if rows.shape != ours.rows.shape:
            yield f"{about}: {kind} has shape {rows.shape}, got {ours.rows.shape}", float("inf")
            continue
        apart = off([rows], [ours])
        if apart == np.inf:
            other = (one[kind] if isinstance(one, dict) else one for one in again())
            apart = off([rows], [settled(rows, ours, [one.reshape(rows.shape) for one in other])])
        yield f"{about} {kind}", apart


def settled(rows: np.ndarray, ours: Scaled, again: list[np.ndarray]) -> Scaled:
    """Return ours, with the module's value where ours is not finite, and nothing says that the module's is.

    So it is where roundings decide it: a divisor that may be 0 is made of rounded values, as the deviation of equal
    ones. And in a row of the module with NaN, whose constants are products with 0 of ours.
    """
    with np.errstate(all="ignore"):
        stay = [(np.abs(one - rows) <= _MOVED_MIN * np.abs(rows)) | (np.isnan(one) & np.isnan(rows)) for one in again]
    moved = ~np.logical_and.reduce(stay) | np.isnan(rows).any(axis=1, keepdims=True)
    return Scaled(np.where(moved & np.isinf(ours.scale) & ~np.isfinite(ours.rows), rows, ours.rows), ours.scale)


def scores_apart(head: nn.Module, model: Model | KindsModel, ends: tuple[str, str]) -> float:
    """Return how far scores of pairs are off those of a head, as a share of the largest one."""
    readouts, rng = Readouts(model), np.random.default_rng(3)
    scores, widths = readouts.link_scores(*ends), readouts.widths
    left, right = (rng.standard_normal((40, widths[one])).astype(np.float32) for one in ends)
    with torch.no_grad():
        want = head.double()(torch.from_numpy(left).double(), torch.from_numpy(right).double()).numpy().reshape(-1)
    return float(np.abs(scores.of(left, right) - want).max() / max(1e-3, np.abs(want).max()))


def stream_apart(source: Source, names: Mapping[str, Any], model: Model | KindsModel) -> tuple[float, int]:
    """Return how far rows after the epochs of a stream with deletions are off the module; how many were compared."""
    random.seed(source.call)
    if isinstance(model, Model):
        return streamed(names["module"], model, source.call)
    kinds = source.kinds or {"vertex": FEATURES}
    relations = source.relations or [("vertex", one.type, "vertex") for one in model.relations]
    return streamed_by_kind(names["module"], model, source.call, (list(kinds), relations), kinds)
