"""Simulated jobs of exported modules with kinds, each epoch held against the module itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.oracles.scaled import Scaled
from freshet.operators.epochs.cut_log import CutLog
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kind_streams import arrays_of, scaled_embeddings
from tests.support.simulation.drawn import simulate
from tests.support.simulation.drawn_kinds import KindsCase, draw_kinds
from tests.support.simulation.oracle import NO_FAULTS, TOLERANCE


class KindInputs(NamedTuple):
    """A graph as modules take it: by kind or relation, in float64. ids: numbers of vertices, in the order of rows."""

    x: dict[str, Any]
    edges: dict[Any, Any]
    weights: dict[Any, Any]
    attributes: dict[Any, Any]
    ids: dict[str, Any]


@dataclass(frozen=True)
class ModuleCase(KindsCase):
    """A drawn job of an exported module; `run` returns the module's rows of the returned kind."""

    run: Callable[[KindInputs], Any] = lambda given: None

    def wanted(self, model: KindsModel, graph: KindGraph, id_of: Any) -> tuple[list[Any], Scaled]:
        """Return the ids, and the module's rows in float64."""
        ids, scaled = scaled_embeddings(model, graph, id_of)
        with torch.no_grad():
            rows = self.run(inputs_of(model, graph))
        return ids, scaled._replace(rows=rows.numpy())


def hold(model: Any, run: Callable[[KindInputs], Any], seeds: Iterable[int]) -> None:
    """Hold a job of the model in each number of parts, as the seeds say, against `run` after every epoch."""
    assert isinstance(model, KindsModel)
    for seed in seeds:
        case = ModuleCase(**{**vars(draw_kinds(seed, given=model)), "run": run})
        rows, worst = case.judge(simulate(case, CutLog(), seed, NO_FAULTS))
        assert rows > 30 and worst < TOLERANCE


def inputs_of(model: KindsModel, graph: KindGraph) -> KindInputs:
    """Return a graph as modules take it."""
    ids, arrays = arrays_of(graph)
    found = KindInputs({}, {}, {}, {}, {})
    for kind, numbers, rows in zip(model.kinds, ids, arrays.x, strict=True):
        found.x[kind], found.ids[kind] = torch.from_numpy(rows.astype("f8")), torch.tensor(numbers, dtype=torch.int64)
    for relation, one in zip(model.relations, arrays.edges, strict=True):
        found.edges[relation.ends] = torch.from_numpy(np.stack([one.src, one.dst]))
        found.weights[relation.ends] = torch.from_numpy(one.values.weight.astype("f8"))
        found.attributes[relation.ends] = torch.from_numpy(one.values.full_attr(relation.edge_features).astype("f8"))
    return found
