"""Passes by torch in chunks over graphs in memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.rows.jumps import CURRENT
from freshet.gnn.torch_modules.chunked.device import FoundDevice, PassFigures
from freshet.gnn.torch_modules.chunked.device_pass import DevicePass, DevicePlan, plan_device_pass
from freshet.gnn.torch_modules.chunked.in_edges import EdgesByTarget
from freshet.gnn.torch_modules.chunked.segment import kinds_of
from freshet.kinds_graph import KindsGraph


class ChunkedGraph(NamedTuple):
    """A plan, and a graph as its passes read it."""

    plan: DevicePlan
    edges: dict[int, EdgesByTarget]
    x: dict[str, np.ndarray]

    @property
    def least(self) -> int:
        """The least budget."""
        return self.plan.least(self.edges)

    def rows(self, memory: int) -> tuple[dict[str, np.ndarray], PassFigures]:
        """Return the rows behind the last layer by kind, and the figures of all passes."""
        widths, total = self.plan.widths[0], PassFigures()
        rows = {}
        for kind, x in self.x.items():
            ends = np.cumsum([0, *widths[kind].values()])
            rows[kind] = {name: x[:, a:b] for name, a, b in zip(widths[kind], ends, ends[1:], strict=False)}
        device = DevicePass(self.plan, FoundDevice(torch.device("cpu"), "cpu", memory), self.edges)
        vertices = {kind: len(x) for kind, x in self.x.items()}
        for some in self.plan.segments:
            made = []
            for costs in some:
                out = {name: np.full((vertices[costs.segment.kind], width), np.nan, np.float32)
                       for name, width in costs.out.items()}  # fmt: skip

                def write(name: str, first: int, new: np.ndarray, out: dict[str, np.ndarray] = out) -> None:
                    out[name][first : first + len(new)] = new

                total.add(device.run(costs, vertices, rows, write))
                made.append((costs.segment.kind, out))
            if some and some[0].segment.conv is not None:
                for names in rows.values():
                    names.pop(CURRENT, None)
            for kind, out in made:
                rows[kind] |= out
        return {kind: names[CURRENT] for kind, names in rows.items() if CURRENT in names}, total


def chunked(model: Model | KindsModel, graph: KindsGraph) -> ChunkedGraph:
    """Return a graph, whose `x` have learned rows behind the features, for passes of a model."""
    kinds = kinds_of(model)
    relations = [(one.target, one.edge_features) for one in model.relations] if isinstance(model, KindsModel) else []
    edges = {}
    for number, (target, width) in enumerate(relations or [("", model.edge_features)]):
        one = graph.edges[number]
        edges[number] = EdgesByTarget.of(
            one.src.astype(np.int32), one.dst.astype(np.int32), len(graph.x[kinds.index(target)]),
            np.ascontiguousarray(one.values.weight, np.float32), one.values.full_attr(width) if width else None,
        )  # fmt: skip
    plan = plan_device_pass(model, {n: 0 if one.attr is None else one.attr.shape[1] for n, one in edges.items()})
    return ChunkedGraph(plan, edges, dict(zip(kinds, graph.x, strict=True)))
