"""Cost follows the change: the rows that layers look at are those that the definition names, no more and no fewer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gnn.model import Model
from gnn.plan import compile_plan
from operators.cut_log import CutLog
from operators.factory import Settings
from operators.sealing import PartitionerStage
from operators.simulation import Id, Simulation
from partitioner.config import STRATEGIES
from partitioner.events import Events
from tests.support.frontier import frontier, moments
from tests.support.models import IN_WIDTH, all_small_models, exact_small_models
from tests.support.oracle import NO_FAULTS, cuts_of, job_settings
from tests.support.streams import random_records, to_events

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
        elif stage.name.startswith(("storage", "tail")):
            act, layer = stage.act, int(stage.name.split("-")[0].lstrip("storageil"))

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
        for layer, active in enumerate(frontier(plan, before, after, moved)):
            assert counts.touched[layer, epoch] == len(active), (epoch, layer, sorted(map(str, active)))
            total += len(active)
            vertices += len(after.x[0])
    return total, vertices


@pytest.mark.parametrize("name", sorted(EXACT))
def test_rows_touched_are_the_frontier(name: str) -> None:
    """Integer rows, so that what has changed does not depend on the order of sums."""
    model = EXACT[name]()
    total = vertices = 0
    for seed in range(4):
        rng = random.Random(f"{name} {seed}")
        events = to_events(random_records(rng, 120, IN_WIDTH, vertices=25, integer=True, types=("a", "b")), IN_WIDTH)
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
    for seed in range(3):
        rng = random.Random(f"{name} {seed}")
        events = to_events(random_records(rng, 100, IN_WIDTH, vertices=25), IN_WIDTH)
        settings = job_settings(model, 1 + seed, strategy=STRATEGIES[seed])
        assert compare(model, events, cuts_of([3, 1, 5], len(events)), settings)[0] > 100
