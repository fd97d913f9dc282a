"""Cost follows the change: the rows that layers look at are those that the definition names, no more and no fewer."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import Model, save_model
from freshet.gnn.plan import compile_plan
from freshet.operators.base_image import build_image
from freshet.operators.dataflow import PARTITIONER, SINK, Place
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.factory import dataflow_of, load_plan, make_partitioner, stages_of
from freshet.operators.network import Network
from freshet.operators.settings import Settings
from freshet.operators.stage import Stage
from freshet.operators.storage.features import FeatureStorage
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.tail import LayerTail
from freshet.partitioner.config import STRATEGIES
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, OP_DEL_EDGE, Events
from freshet.partitioner.ids import Ids
from freshet.schema import EdgeValues, FeatureRows, Features
from tests.support.graphs.data import data_set
from tests.support.graphs.frontier import frontier, moments, prunes
from tests.support.graphs.models import (
    IN_WIDTH,
    all_small_models,
    conv,
    exact_small_models,
    make_model,
    seeds_of,
)
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import NO_FAULTS, cuts_of, job_settings
from tests.support.simulation.simulator import Simulation
from tests.support.simulation.survivors import Id, RecordingSink

EXACT, MODELS = exact_small_models(), all_small_models()


class Counts:
    """What a simulation touched, by layer and epoch, and the split vertices after each epoch."""

    def __init__(self) -> None:
        self.touched: dict[tuple[int, int], int] = {}
        self.split: dict[int, set[Id]] = {0: set()}

    def watch(self, stage: Any) -> None:
        if isinstance(stage, PartitionerStage):
            seal = stage._seal

            def sealed(*args: Any) -> Any:
                outcome = seal(*args)
                graph = stage.core.live_graph()
                ids = graph.ids.to_list()
                away = graph.part != graph.master[graph.dst]
                self.split[stage.epoch] = {ids[row] for row in graph.dst[away].tolist()}
                return outcome

            stage._seal = sealed  # type: ignore[method-assign]
        elif isinstance(stage.core, FeatureStorage | LayerStorage | LayerTail):
            act, layer = stage.act, stage.core.owners[0].number

            def acted(blocks: list[bytes]) -> Any:
                outcome = act(blocks)
                key = (layer, stage.epoch)
                self.touched[key] = self.touched.get(key, 0) + stage.core.touched
                return outcome

            stage.act = acted


def compare(model: Model, events: Events, log: CutLog, settings: Settings) -> tuple[int, int]:
    """Rows touched in all layers and epochs; and how many the vertices of all epochs are."""
    plan, counts = compile_plan(model), Counts()
    simulation = Simulation(settings, plan, events, log, 1, NO_FAULTS)
    simulation.on_stage = counts.watch
    simulation.run()
    history = moments(events, log, settings, plan)
    total = vertices = 0
    for epoch in log.cuts:
        before, after = history[epoch - 1], history[epoch]
        live = set(before.x[0]) & set(after.x[0])
        moved = (counts.split[epoch] ^ counts.split[epoch - 1]) & live
        reached = frontier(plan, before, after, moved, pruned=False)
        for layer, active in enumerate(frontier(plan, before, after, moved)):
            # a partial extremum may change where that of all parts does not
            most = active if settings.parts == 1 or not prunes(plan) else reached[layer]
            assert len(active) <= counts.touched[layer, epoch] <= len(most), (epoch, layer, sorted(map(str, active)))
            total += len(active)
            vertices += len(after.x[0])
    return total, vertices


@pytest.mark.parametrize(
    "name",  # a frontier does not depend on widths: those of layers that widen are enough
    [pytest.param(one, marks=pytest.mark.long) if one.endswith("-narrowing") else one for one in sorted(EXACT)],
)
def test_rows_touched_are_the_frontier(name: str) -> None:
    """Integer rows, so that what has changed does not depend on the order of sums."""
    model = EXACT[name]()
    total = vertices = 0
    for seed in seeds_of(name, EXACT)[:2]:
        rng = random.Random(f"{name} {seed}")
        records = random_records(rng, 120, IN_WIDTH, vertices=25, integer=True, types=("a", "b"))
        events = to_events(records, IN_WIDTH, edge_width=model.edge_features)
        settings = job_settings(
            model, 1 + seed, strategy=STRATEGIES[(seed + len(name)) % 4], undirected=rng.random() < 0.3
        )
        log = cuts_of([rng.randint(1, 6) for _ in range(5)], len(events))
        more, all_rows = compare(model, events, log, settings)
        total, vertices = total + more, vertices + all_rows
    assert 100 < total < 0.7 * vertices


@pytest.mark.parametrize(
    "name", ["gcn_conv-default-2-layers", "gcn_conv-unweighted-2-layers", "graph_conv-mean-2-layers", "4-layers-gcn"]
)
def test_rows_touched_are_the_frontier_where_degrees_count(name: str) -> None:
    """Real-valued rows: one that is touched differs in its last bits at least."""
    model = MODELS[name]()
    for seed in (0, 2):  # one part, and three
        rng = random.Random(f"{name} {seed}")
        events = to_events(random_records(rng, 100, IN_WIDTH, vertices=25), IN_WIDTH)
        settings = job_settings(model, 1 + seed, strategy=STRATEGIES[seed])
        assert compare(model, events, cuts_of([3, 1, 5], len(events)), settings)[0] > 100


# -- one edge on a real graph -----------------------------------------------------------------------------------------

WIDTH, HELD_BACK = 16, 200


def arxiv() -> tuple[np.ndarray, np.ndarray]:
    """Source and destination of each edge, in random order."""
    table = pq.read_table(data_set("arxiv") / "edges.parquet")
    order = np.random.default_rng(1).permutation(table.num_rows)
    return table["src"].to_numpy()[order], table["dst"].to_numpy()[order]


def edge_events(op: np.ndarray, src: np.ndarray, dst: np.ndarray, x: np.ndarray) -> Events:
    """Edge events; where `op` is OP_ADD_VERTEX the row of x belongs to the vertex src."""
    n = len(op)
    return replace(
        Events.empty(Features(WIDTH)),
        op=op.astype(np.uint8),
        a=Ids.of_ints(src),
        b=Ids.of_ints(dst),
        values=EdgeValues.default(n),
        etype=np.zeros(n, np.int32),
        x_row=np.where(op == OP_ADD_VERTEX, np.arange(n), -1).astype(np.int32),
        x=FeatureRows(x),
        position=np.arange(1, n + 1),
        source=np.zeros(n, np.int16),
        partition=np.zeros(n, np.int16),
    )


@pytest.mark.slow
def test_one_edge_on_arxiv_touches_less_than_a_thousandth_of_the_vertices(tmp_path: Path) -> None:
    src, dst = arxiv()
    vertices = int(max(src.max(), dst.max())) + 1
    model = make_model(1, [conv("graph_conv", WIDTH, 16), {"type": "relu"}, conv("graph_conv", 16, 8)])
    save_model(model, tmp_path / "model")
    settings = replace(job_settings(model, 1, 1), model=str(tmp_path / "model"), out=str(tmp_path / "out"))
    settings = replace(settings, image=str(tmp_path / "image"))
    op = np.concatenate([np.full(vertices, OP_ADD_VERTEX), np.full(len(src) - HELD_BACK, OP_ADD_EDGE)])
    a = np.concatenate([np.arange(vertices), src[HELD_BACK:]])
    b = np.concatenate([np.zeros(vertices, np.int64), dst[HELD_BACK:]])
    x = np.random.default_rng(2).standard_normal((vertices, WIDTH)).astype(np.float32)
    assert build_image(settings, [edge_events(op, a, b, x)]) == vertices

    # the edges held back come, and as many others go, one an epoch
    ones = np.ones(HELD_BACK, np.int64)
    changes = edge_events(
        np.concatenate([ones * OP_ADD_EDGE, ones * OP_DEL_EDGE]), src[: 2 * HELD_BACK], dst[: 2 * HELD_BACK], x[:0]
    )
    touched = touched_by(settings, changes)
    assert len(touched) == 2 * HELD_BACK
    median = float(np.median(list(touched.values())))
    assert median < 0.001 * vertices, f"{median} of {vertices} vertices at the median"


def touched_by(settings: Settings, changes: Events) -> dict[int, int]:
    """Rows touched in all layers, by epoch."""
    plan = load_plan(settings.model)
    partitioner, flow = make_partitioner(settings, plan, CutLog()), dataflow_of(settings, plan)
    stages = stages_of(settings, plan, [row for row in flow.staged if row.kind != SINK])
    stages[Place(SINK, 0)] = Stage("sink-0", RecordingSink({0: {}}, {}), 1)
    touched: dict[int, int] = {}
    for stage in (partitioner, *stages.values()):
        stage.restore([])
    network = Network(flow, stages)
    network.send(Place(PARTITIONER, 0), partitioner.receive(changes.encode(), 0.0).messages)
    while not network.idle:
        acted = network.step()
        if acted is not None and acted[0].operator != SINK:
            stage = stages[acted[0]]
            touched[stage.epoch] = touched.get(stage.epoch, 0) + stage.core.touched
    return touched
