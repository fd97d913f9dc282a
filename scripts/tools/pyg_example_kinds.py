"""Models with kinds of PyG's examples on a random stream with deletions: PyG's rows after every epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.gnn.pyg.running import copy_of
from freshet.operators.epochs.cut_log import CutLog
from tests.support.simulation.drawn import simulate
from tests.support.simulation.drawn_kinds import draw_kinds
from tests.support.simulation.module_cases import KindInputs, ModuleCase
from tests.support.simulation.oracle import NO_FAULTS

STREAMS, EDGE_WIDTH = 2, 3
Metadata = tuple[Sequence[str], Sequence[tuple[str, str, str]]]


def compared(
    module: nn.Module, model: KindsModel, call: str, metadata: Metadata, widths: Mapping[str, int]
) -> tuple[float, int]:
    """Return the largest difference from PyG, at each value's own scale, of each kind that is returned; how many rows.

    `widths`: of the features of each kind. A difference past the simulator's tolerance is infinite.
    """
    in_float64, off, rows = module.double(), 0.0, 0
    for kind in model.out:
        fields = model.declaration() | {"out": [kind], "heads": {}, "link_heads": []}
        weights = {name: one for name, one in model.weights.items() if not name.startswith(("heads.", "link_heads."))}
        of_kind = build_kinds_model(**fields, weights=weights)
        run = _caller(in_float64, of_kind, call, metadata, widths)
        for case in islice(_cases(of_kind, run), STREAMS):
            try:
                more, worst = case.judge(simulate(case, CutLog(), case.seed, NO_FAULTS))
            except AssertionError:
                more, worst = 0, float("inf")
            off, rows = max(off, worst), rows + more
    return off, rows


def kinds_named(model: KindsModel, kinds: Sequence[str], relations: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Return the module's names of a model's kinds: that of a sole kind is not always the module's first."""
    read = {one.type for one in model.relations}
    sole = next((source for source, name, _ in relations if source in kinds and name in read), kinds[0])
    return {one: one if one in kinds else sole for one in model.kinds}


def _cases(model: KindsModel, run: Callable[[KindInputs], Any]) -> Any:
    """Yield drawn jobs; rows that were learned for numbers have numbers as ids."""
    for seed in count(1):
        case = ModuleCase(**{**vars(draw_kinds(seed, given=model)), "run": run})
        if not (model.learned and case.strings):
            yield case


def _caller(
    module: nn.Module, model: KindsModel, call: str, metadata: Metadata, widths: Mapping[str, int]
) -> Callable[[KindInputs], Any]:
    kinds, relations = metadata
    if "x_dict" not in call:
        kinds, relations = ["vertex"], [("vertex", one.type, "vertex") for one in model.relations]
    named = kinds_named(model, kinds, relations)

    def run(given: KindInputs) -> Any:
        places = {named[kind]: _places(model, kind, of) for kind, of in given.ids.items()}
        x = {kind: torch.zeros(0, widths.get(kind, 0), dtype=torch.float64) for kind in kinds}
        for kind, rows in given.x.items():
            many = model.learned[kind].count if kind in model.learned else len(rows)
            x[named[kind]] = torch.zeros(many, rows.shape[1], dtype=torch.float64)
            x[named[kind]][places[named[kind]]] = rows
        edges = {tuple(one): torch.zeros(2, 0, dtype=torch.int64) for one in relations}
        weights = {one: torch.zeros(0, dtype=torch.float64) for one in edges}
        attributes = {one: torch.zeros(0, EDGE_WIDTH, dtype=torch.float64) for one in edges}
        for (source, name, target), of in given.edges.items():
            ends = named[source], named[target]
            one = ends[0], name, ends[1]
            edges[one] = torch.stack([places[ends[0]][of[0]], places[ends[1]][of[1]]])
            weights[one], read = given.weights[source, name, target], given.attributes[source, name, target]
            attributes[one] = read if read.shape[1] else torch.zeros(len(read), EDGE_WIDTH, dtype=torch.float64)
        if "x_dict" not in call and "edge_type" not in call:  # which turns the edges by itself
            edges = {
                key: one for (key, one), of in zip(edges.items(), model.relations, strict=True) if of.mirrors is None
            }
        dicts = {"edge_weight_dict": weights, "edge_attr_dict": attributes}
        of_all = (
            {}
            if "x_dict" in call
            else {
                "edge_weight": torch.cat([weights[one] for one in edges]),
                "edge_attr": torch.cat([attributes[one] for one in edges]),
            }
        )
        torch.set_default_dtype(torch.float64)  # of tensors that a forward makes
        try:
            beside = {"nn": nn, "Data": Data, "Names": SimpleNamespace, **dicts, **_arguments(x, edges, of_all)}
            made = eval(call, {"module": copy_of(module), **beside})
        finally:
            torch.set_default_dtype(torch.float32)
        (kind,) = model.out
        rows = made[named[kind]] if isinstance(made, dict) else made
        return rows[places[named[kind]]]

    return run


def _places(model: KindsModel, kind: str, ids: Any) -> Any:
    """Return the places of vertices in the rows of a kind: their ids where rows were learned for these."""
    return ids if kind in model.learned else torch.arange(len(ids))


def _arguments(x: dict[str, Any], edges: dict[Any, Any], of_all: dict[str, Any]) -> dict[str, Any]:
    """Return what the call of a table's entry names; `of_all`: what edges have, those of all relations."""
    types = [torch.full((one.shape[1],), number) for number, one in enumerate(edges.values())]
    typed = {"x": next(iter(x.values())), "edge_index": torch.cat([*edges.values()], 1), "edge_type": torch.cat(types)}
    sets = {f"{relation}_edge_index": of for (_, relation, _), of in edges.items()}
    graph = SimpleNamespace(x=typed["x"], edge_index=typed["edge_index"], num_nodes=len(typed["x"]), **of_all)
    return {"x_dict": x, "edge_index_dict": edges, "graph": graph, **typed, **sets, **of_all}
