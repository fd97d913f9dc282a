"""Holds a simulated job against a full recompute, epoch by epoch."""

from __future__ import annotations

import numpy as np

from gnn import oracle
from gnn.model import Model
from gnn.plan import compile_plan
from operators.cut_log import Cut, CutLog, Lane
from operators.factory import Settings
from operators.replay_graph import GraphArrays, ReferenceGraph
from operators.simulation import Faults, Id, Rows, Simulation, lanes_of
from partitioner.events import Events

TOLERANCE = 1e-4
NO_FAULTS = Faults(barrier=0.0, tick=0.0, crashes=0)


def job_settings(model: Model, parts: int, epoch_events: int = 1000, **options: object) -> Settings:
    """Settings of a job on this model; `options` go to the partitioner."""
    plan = compile_plan(model)
    partitioner = {"strategy": "hybrid", "hybrid_threshold": 3, **options}
    id_kind = str(partitioner.pop("id_kind", "int"))
    partitioner["forbid_typed_loops"] = any(layer.skip_loops for layer in plan.layers)
    partitioner["edge_types"] = plan.edge_types or None
    return Settings("", "", parts, partitioner, id_kind=id_kind, epoch_events=epoch_events, marker_interval_ms=20)


def cuts_of(sizes: list[int], total: int) -> CutLog:
    """A log that cuts after these many events, again and again, to the end of the input."""
    log, end = CutLog(), 0
    while end < total:
        end = min(end + sizes[len(log.cuts) % len(sizes)], total)
        log.append(Cut(log.last + 1, end, log.last % 4 == 3))
    return log


def references(events: Events, log: CutLog, settings: Settings) -> list[tuple[int, GraphArrays]]:
    """The graph after each epoch."""
    options = settings.partitioner
    types = options["edge_types"]
    graph = ReferenceGraph(
        events.in_width,
        undirected=bool(options.get("undirected")),
        default_type=types[0] if types else None,
        forbid_typed_loops=options["forbid_typed_loops"],
    )
    found, begin = [], dict[Lane, int]()
    lanes = lanes_of(events, settings.topics)
    for epoch in log.cuts:
        ends = log.ends(epoch)
        for lane in sorted(lanes):  # files are source 0: they come first
            graph.apply(lanes[lane].slice(begin.get(lane, 0), ends.get(lane, 0)))
        begin = ends
        found.append((epoch, graph.arrays()))
    return found


def assert_exact(model: Model, events: Events, simulation: Simulation, *, bitwise: bool = False) -> int:
    """Every epoch's embeddings equal the oracle's on that epoch's graph; returns how many rows were compared."""
    rows = simulation.rows()
    state: Rows = {}
    compared = 0
    for epoch, graph in references(events, simulation.log, simulation.settings):
        state.update(rows[epoch])
        live = {key: row for key, row in state.items() if row is not None}
        assert set(live) == set(graph.ids), f"epoch {epoch}: ids {sorted(map(str, set(live) ^ set(graph.ids)))} differ"
        if not graph.ids:
            continue
        want = oracle.forward(model, graph.x, graph.src, graph.dst, graph.weight)[-1]
        got = np.stack([np.frombuffer(live[key], np.float32) for key in graph.ids])
        _compare(got, want, graph.ids, epoch, bitwise=bitwise)
        compared += len(graph.ids)
    return compared


def _compare(got: np.ndarray, want: np.ndarray, ids: list[Id], epoch: int, *, bitwise: bool) -> None:
    if bitwise:
        wrong = (got != want.astype(np.float32)).any(axis=1)
    else:
        finite = np.abs(want[np.isfinite(want)])
        scale = max(float(finite.max(initial=0.0)), 1e-3)
        close = np.abs(got - want) <= TOLERANCE * scale
        wrong = ~(close | (got == want) | (np.isnan(got) & np.isnan(want))).all(axis=1)
    assert not wrong.any(), (
        f"epoch {epoch}: vertices {[ids[k] for k in np.flatnonzero(wrong)]}:\ngot {got[wrong]}\nwant {want[wrong]}"
    )


def run(settings: Settings, model: Model, events: Events, log: CutLog, seed: int, faults: Faults) -> Simulation:
    """A finished simulation."""
    simulation = Simulation(settings, compile_plan(model), events, log, seed, faults)
    simulation.run()
    return simulation
