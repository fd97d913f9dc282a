"""Random jobs for the simulator whose vertices have kinds: mirrors, kinds that vanish and come back, snapshots."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from freshet.gnn.any_plan import unmerged
from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.gnn.oracles.scaled import Scaled
from freshet.kinds import Kinds
from freshet.operators.epochs.config import WAITING_BYTES
from freshet.operators.inbox import INBOX_BYTES
from freshet.partitioner.config import SPLITTING_NONE, STRATEGIES
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from tests.support.graphs.keyed_streams import keyed_rows
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kind_streams import Row, event_row, random_rows, scaled_embeddings
from tests.support.graphs.kinds import many_relations, random_model_of_kinds, scaled_by_degrees, text_id
from tests.support.graphs.messages import messages_by_kind, written_by_kind
from tests.support.simulation.drawn import Case, faults_of, through_partitions
from tests.support.simulation.keys import draw_keys
from tests.support.simulation.lanes import lanes_of
from tests.support.simulation.oracle import NO_FAULTS, compare, events_between, job_settings, sealed_by
from tests.support.simulation.simulator import Simulation
from tests.support.simulation.survivors import Rows
from tests.support.stages.cuts import ends_by_epoch

MODELS = 60
FAMILIES = many_relations, scaled_by_degrees, messages_by_kind, written_by_kind
MANY, BY_DEGREES, MESSAGES, WRITTEN = 1, 2, 3, 4


@dataclass(frozen=True)
class KindsCase(Case):
    """What a seed draws; `rows` are the events, `begun` those of the snapshot, as KindGraph takes them."""

    rows: tuple[Row, ...] = ()
    begun: tuple[Row, ...] = ()
    given: KindsModel | None = None

    @property
    def plan(self) -> KindsPlan:
        """The compiled model."""
        return compile_kinds(self.trained)

    @cached_property
    def trained(self) -> KindsModel:
        """The model: the one that is given, or the drawn one."""
        return self.given or _model(int(self.model.rpartition(" ")[2]), self.strings)

    def judge(self, run: Simulation) -> tuple[int, float]:
        """Hold every epoch against a full pass in float64 on the graph of that epoch."""
        model, kinds = self.trained, kinds_of(self)
        id_of = text_id if self.strings else int
        options = self.settings.partitioning
        graph = KindGraph(kinds, keyed=options.edge_keys != "", one_loop=options.one_loop_relations)
        rows, state = run.rows(), Rows()
        compared, worst = 0, 0.0
        for epoch, more in self._by_epoch(run):
            graph.apply(list(more), [])
            state.update(rows[epoch])
            ids, want = self.wanted(model, graph, id_of)
            named = [id_of(one) for one in ids]
            live = {key: row for key, row in state.items() if row is not None}
            assert set(live) == set(named), f"epoch {epoch}: ids {sorted(map(str, set(live) ^ set(named)))} differ"
            if named:
                got = np.stack([np.frombuffer(live[key], np.float32) for key in named])
                worst = max(worst, compare(got, want, named, epoch, bitwise=False))
            compared += len(named)
        return compared, worst

    def wanted(self, model: KindsModel, graph: KindGraph, id_of: Any) -> tuple[list[Any], Scaled]:
        """Return the ids of the returned kind, and the rows that they are to have, with the scales of their errors."""
        return scaled_embeddings(model, graph, id_of)

    def _by_epoch(self, run: Simulation) -> list[tuple[int, list[Row]]]:
        """The rows of each epoch, which has those of each lane from one number to another."""
        numbered = replace(self.events, ts=np.arange(len(self.events), dtype=np.int64))
        lanes, begin = lanes_of(numbered, self.settings.topics), dict[Any, int]()
        found = [(0, list(self.begun))] if self.begun else []
        for epoch, ends in ends_by_epoch(run.log, self.settings.topics).items():
            if epoch:
                taken = events_between(lanes, begin, ends).ts
                found.append((epoch, [self.rows[k] for k in ([] if taken is None else taken.tolist())]))
                begin = ends
        return found


def _model(number: int, strings: bool) -> KindsModel:
    """A random model that returns the first of its kinds; past MODELS those of FAMILIES."""
    family, number = divmod(number, MODELS)
    model = random_model_of_kinds(number, strings=strings) if not family else FAMILIES[family - 1](number)
    fields = model.declaration() | {"out": model.out[:1]}
    return build_kinds_model(**fields, weights=model.weights)


def kinds_of(case: KindsCase) -> Kinds:
    """The kinds of a case's model."""
    kinds = case.plan.features.kinds
    assert kinds is not None
    return kinds


def draw_kinds(seed: int, family: int = 0, *, given: KindsModel | None = None) -> KindsCase:
    """Everything but the schedule, which the simulation draws from the same seed.

    `family`: MANY, of a model with many relations within a kind; BY_DEGREES, of one whose convs scale by degrees;
    MESSAGES, of one whose messages are programs; WRITTEN, of one of written layers, whose vertices are not split where
    an aggregate does not merge.
    `given`: of this model, in 1 to 4 parts by the seed.
    """
    rng, some = random.Random(f"kinds {seed}"), np.random.default_rng(seed)
    number, parts, strings = rng.randrange(MODELS) + MODELS * family, rng.randint(1, 4), rng.random() < 0.25
    model = given or _model(number, strings)
    parts = parts if given is None else 1 + seed % 4
    settings = job_settings(
        model,
        parts,
        rng.randint(4, 14),
        strategy=rng.choice(sorted(SPLITTING_NONE) if unmerged(compile_kinds(model)) else STRATEGIES),
        hybrid_threshold=rng.randint(0, 4),
        id_kind="string" if strings else "int",
        hash_seed=seed,
    )
    settings = sealed_by(
        settings, marker_interval_ms=rng.choice([1, 4, 15]), waiting_bytes=(0, WAITING_BYTES)[seed % 2]
    )
    kinds = model.features.kinds
    assert kinds is not None
    graph, begun = KindGraph(kinds), list[Row]()
    if rng.random() < 0.4:
        begun = [row for row in random_rows(graph, some, 40) if row[0].startswith("add_")]
        graph.apply(begun, [])
    rows = drawn_rows(graph, some, rng, rng.randint(60, 120))
    events, settings = through_partitions(seed, _events(model, rows, strings), settings)
    snapshot = _events(model, begun, strings) if begun else None
    events, settings, snapshot = draw_keys(seed, events, settings, snapshot)
    if settings.partitioning.edge_keys:
        rows, begun = keyed_rows(rows, events), keyed_rows(begun, snapshot) if snapshot else []
    pages, spread = rng.choice([1, 512, 1 << 16]), rng.choice([1, 4, 200])
    told = f"kinds {number}", settings, model, events, NO_FAULTS, pages, spread, snapshot
    case = KindsCase(seed, *told, rows=tuple(rows), begun=tuple(begun), given=given)
    return replace(case, faults=replace(faults_of(seed, rng, case), inbox_bytes=(0, 4000, INBOX_BYTES)[seed % 3]))


def drawn_rows(graph: KindGraph, some: np.random.Generator, rng: random.Random, many: int) -> list[Row]:
    """Random rows; now and then all vertices of a kind go, and come again later."""
    rows: list[Row] = []
    while len(rows) < many:
        more = random_rows(graph, some, 15)
        if rng.random() < 0.3:
            kind = rng.randrange(len(graph.kinds))
            more += [("del_vertex", (kind, vertex)) for k, vertex in graph.x if k == kind]
        graph.apply(more, [])
        rows += more
    return rows


def _events(model: KindsModel, rows: list[Row], strings: bool) -> Events:
    features = model.features
    assert features.kinds is not None
    id_of = text_id if strings else int
    given = [event_row(features.kinds, row, id_of) for row in rows]
    return events_of(given, features, "string" if strings else "int", model.edge_types)
