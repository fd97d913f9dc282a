"""Edges whose attributes come, change and go in every way that differs, and jobs that are held against full passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from freshet.gnn.any_plan import unmerged
from freshet.gnn.model import Model
from freshet.gnn.plan import compile_plan
from freshet.operators.epochs.cut_log import CutLog
from freshet.partitioner.config import SPLITTING_NONE, STRATEGIES
from freshet.schema import Graph
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import IN_WIDTH
from tests.support.graphs.streams import Record, to_events
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, job_settings, run, sealed_by
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.simulator import Faults
from tests.support.stages.cuts import copied

HUB, LEAVES = 0, range(1, 9)
TYPES = (None, "a", "b")
Attr = tuple[float, ...] | None


class Changes:
    """A hub and its leaves, with what their edges carry now, so that each event says what it changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"attributes {seed}")
        self.edges: dict[tuple[int, int, str | None], tuple[float, Attr]] = {}
        self.records: list[Record] = [
            {"op": "set_features", "id": k, "x": [self.rng.gauss(0, 1) for _ in range(IN_WIDTH)]}
            for k in (HUB, *LEAVES)
        ]

    def add(self, src: int, dst: int, kind: str | None, weight: float, attr: Attr) -> None:
        self.edges[src, dst, kind] = weight, attr
        record: Record = {"op": "add_edge", "src": src, "dst": dst, "weight": weight, "attr": attr}
        self.records.append(record | ({} if kind is None else {"type": kind}))

    def delete(self, src: int, dst: int, kind: str | None) -> None:
        self.edges.pop((src, dst, kind), None)
        self.records.append({"op": "del_edge", "src": src, "dst": dst} | ({} if kind is None else {"type": kind}))

    def drawn(self) -> Attr:
        """Attributes, sometimes so large that a sum of them has lost what else is in it when they go."""
        scale = self.rng.choice([1.0, 1.0, 1.0, 64.0])
        return tuple(round(scale * self.rng.gauss(0, 1), 2) for _ in range(EDGE_WIDTH))

    def step(self) -> None:
        """Change something, by one to three events."""
        rng = self.rng
        there = rng.choice(list(self.edges)) if self.edges else (HUB, HUB, None)
        match rng.randrange(10) if self.edges else 9:
            case 0:  # attributes alone
                self.add(*there, self.edges[there][0], self.drawn())
            case 1:  # the weight alone
                self.add(*there, rng.choice([0.5, 2.0, 3.0]), self.edges[there][1])
            case 2:  # nothing
                self.add(*there, *self.edges[there])
            case 3:  # to zeros
                self.add(*there, self.edges[there][0], None)
            case 4:  # bits of zeros alone
                self.add(*there, self.edges[there][0], tuple(rng.choice([0.0, -0.0]) for _ in range(EDGE_WIDTH)))
            case 5:  # edges of one pair, which differ in type alone; one of them may go
                for kind in TYPES if there[0] != there[1] else TYPES[:1]:
                    self.add(*there[:2], kind, 1.0, self.drawn())
                if rng.random() < 0.5:
                    self.delete(*there[:2], rng.choice(TYPES))
            case 6:  # of several adds the last one holds
                self.add(*there, 1.0, self.drawn())
                self.delete(*there)
                self.add(*there, 1.0, self.drawn())
                self.add(*there, 1.0, rng.choice([self.drawn(), None]))
            case 7:
                self.delete(*there)
            case 8:  # the hub's own loop, and that of a vertex without any other in-edge
                vertex = rng.choice([HUB, HUB, rng.choice(LEAVES)])
                if (vertex, vertex, None) in self.edges and rng.random() < 0.5:
                    self.delete(vertex, vertex, None)
                else:
                    self.add(vertex, vertex, None, 1.0, rng.choice([self.drawn(), None]))
            case _:
                ends = (rng.choice(LEAVES), HUB) if rng.random() < 0.7 else (HUB, rng.choice(LEAVES))
                self.add(*ends, rng.choice(TYPES), 1.0, self.drawn())


def stream(seed: int) -> list[Record]:
    """A hub that gains in-edges, of which attributes change, and loses them again, to the last one."""
    changes = Changes(seed)
    for leaf in LEAVES:
        changes.add(leaf, HUB, None, 1.0, changes.drawn())
    for _ in range(70):
        changes.step()
    into = [edge for edge in changes.edges if edge[1] == HUB]
    for k, edge in enumerate(into):
        if k % 3 == 2 and edge[0] != HUB:
            changes.records.append({"op": "del_vertex", "id": edge[0]})
        changes.delete(*edge)
    changes.add(LEAVES[0], HUB, "a", 1.0, changes.drawn())
    return changes.records


def pyg_pass(module: Any, reads: str) -> Callable[[Graph], np.ndarray]:
    """Return the full pass of a module in float64, which is called with what `reads` names: weight, attr, or both."""
    import torch

    def by_pyg(graph: Graph) -> np.ndarray:
        index = torch.from_numpy(np.stack([graph.src, graph.dst]).astype(np.int64))
        of_edges = {"attr": graph.values.full_attr(EDGE_WIDTH), "weight": graph.values.weight}
        given = [torch.tensor(of_edges[one], dtype=torch.float64) for one in reads.split()]
        with torch.no_grad():
            made: np.ndarray = module(torch.tensor(graph.x, dtype=torch.float64), index, *given).numpy()
        return made

    return by_pyg


def crashes_of(model: Model, seed: int, another: Callable[[Graph], np.ndarray] | None = None) -> int:
    """Hold a job of a model, whether or not it reads attributes, against the full pass and itself; its crashes.

    `another`: a second full pass.
    """
    records = [record if model.edge_features else {**record, "attr": None} for record in stream(seed)]
    events = to_events(records, IN_WIDTH, edge_width=model.edge_features)
    strategy = sorted(SPLITTING_NONE)[seed // 4 % 2] if unmerged(compile_plan(model)) else STRATEGIES[seed // 4 % 4]
    shape: dict[str, Any] = {"strategy": strategy, "undirected": seed % 5 == 4, "hybrid_threshold": 2}
    parts = 1 + seed % 4
    settings = sealed_by(job_settings(model, parts, 7, **shape), marker_interval_ms=2)
    # Late enough that state from before is read again: an epoch has as many steps as there are channels.
    faults = Faults(barrier=0.15 / parts, tick=0.005, crashes=8, crash=0.04 / parts)
    with page_bytes(1):
        log = CutLog()
        crashed = run(settings, model, events, log, seed, faults)
        calm = run(settings, model, events, copied(log), seed + 1, NO_FAULTS)
    assert assert_exact(model, events, crashed, another=another)[0] > 100
    assert crashed.rows() == calm.rows()
    return crashed.crashes
