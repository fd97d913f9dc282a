"""Holds a simulated job against a full recompute, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from freshet.gnn.any_plan import compile_any
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.plan import compile_plan
from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import Cut, Lane
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.graph.rules import graph_rules
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.events import Events
from freshet.partitioner.reference.graph import GraphArrays, ReferenceGraph
from freshet.schema import Graph
from tests.support.simulation.lanes import lanes_of
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.simulation.survivors import Id, Rows
from tests.support.stages.cuts import ends_by_epoch

TOLERANCE = 1e-5  # of a value's own scale: the magnitude of what was summed to get it
SMALLEST = 1e-30  # scale near the smallest normal float32, below which it has no digits
NO_FAULTS = Faults(barrier=0.0, tick=0.0, crashes=0)


def job_settings(model: Model | KindsModel, parts: int, epoch_events: int = 1000, **options: object) -> Settings:
    """Settings of a job on this model; `options` go to the partitioner."""
    plan = compile_any(model)
    given: dict[str, Any] = {"hybrid_threshold": 3, **options}
    partitioning = PartitionerConfig.of(graph_rules(plan, undirected=False), **given)
    return Settings("", "", parts, partitioning, sealing=SealingConfig(epoch_events, marker_interval_ms=20))


def sealed_by(settings: Settings, **changes: int) -> Settings:
    """The settings with these changes of when epochs and markers come."""
    return replace(settings, sealing=replace(settings.sealing, **changes))


def cuts_of(sizes: list[int], total: int) -> CutLog:
    """A log that cuts after these many events, again and again, to the end of the input."""
    log, end = CutLog(), 0
    while end < total:
        end = min(end + sizes[len(log.cuts) % len(sizes)], total)
        log.append(Cut(log.last + 1, end, log.last % 4 == 3))
    return log


def events_between(lanes: Mapping[Lane, Events], begin: Mapping[Lane, int], end: Mapping[Lane, int]) -> Events:
    """The events of an epoch, which has those of each lane from one number to another; files are source 0: first."""
    return Events.concatenate([lanes[lane].slice(begin.get(lane, 0), end.get(lane, 0)) for lane in sorted(lanes)])


def references(
    events: Events, log: CutLog, settings: Settings, snapshot: Events | None = None
) -> list[tuple[int, GraphArrays]]:
    """The graph after each epoch; with a snapshot, also epoch 0."""
    graph = ReferenceGraph(events.features, settings.partitioning.rules)
    found, begin = list[tuple[int, GraphArrays]](), dict[Lane, int]()
    if snapshot is not None:
        graph.apply(snapshot, snapshot=True)
        found.append((0, graph.arrays()))
    lanes = lanes_of(events, settings.topics)
    for epoch, ends in ends_by_epoch(log, settings.topics).items():
        if epoch == 0:
            continue
        graph.apply(events_between(lanes, begin, ends))
        begin = ends
        found.append((epoch, graph.arrays()))
    return found


def assert_exact(
    model: Model,
    events: Events,
    simulation: Simulation,
    *,
    bitwise: bool = False,
    snapshot: Events | None = None,
    another: Callable[[Graph], np.ndarray] | None = None,
) -> tuple[int, float]:
    """Every epoch's embeddings equal a float64 pass on that epoch's graph, each value at its own scale.

    Returns how many rows were compared, and the largest error. `bitwise`: all sums are exact, and so must the rows be;
    `another`: a second pass, whose rows they must equal, too.
    """
    rows = simulation.rows()
    state: Rows = {}
    compared, worst = 0, 0.0
    for epoch, graph in references(events, simulation.log, simulation.settings, snapshot):
        state.update(rows[epoch])
        live = {key: row for key, row in state.items() if row is not None}
        assert set(live) == set(graph.ids), f"epoch {epoch}: ids {sorted(map(str, set(live) ^ set(graph.ids)))} differ"
        if not graph.ids:
            continue
        want = own_scale.forward(model, graph.graph, tolerance=TOLERANCE)
        got = np.stack([np.frombuffer(live[key], np.float32) for key in graph.ids])
        worst = max(worst, compare(got, want, graph.ids, epoch, bitwise=bitwise))
        if another is not None:
            compare(got, want._replace(rows=another(graph.graph)), graph.ids, epoch, bitwise=bitwise)
        compared += len(graph.ids)
    return compared, worst


def compare(got: np.ndarray, want: Scaled, ids: list[Id], epoch: int, *, bitwise: bool) -> float:
    """The largest error, relative to the scale of its value; NaN and infinity are right where float32 ran over."""
    if bitwise:
        error = np.where(got == want.rows.astype(np.float32), 0.0, np.inf)
    else:
        over = ~np.isfinite(want.scale) & ~np.isfinite(got)
        same = over | (got == want.rows) | (np.isnan(got) & np.isnan(want.rows))
        with np.errstate(all="ignore"):
            error = np.where(
                same, 0.0, np.nan_to_num(np.abs(got - want.rows) / np.maximum(want.scale, SMALLEST), nan=np.inf)
            )
    wrong = (error > TOLERANCE).any(axis=1)
    assert not wrong.any(), (
        f"epoch {epoch}: vertices {[ids[k] for k in np.flatnonzero(wrong)]}, {error.max():.1e} of their scale:\n"
        f"got {got[wrong]}\nwant {want.rows[wrong]}\nscale {want.scale[wrong]}"
    )
    return float(error.max())


def run(settings: Settings, model: Model, events: Events, log: CutLog, seed: int, faults: Faults) -> Simulation:
    """A finished simulation."""
    simulation = Simulation(settings, compile_plan(model), events, log, seed, faults)
    simulation.run()
    return simulation
