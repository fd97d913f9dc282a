"""Random jobs for the simulator, each a function of its seed: drawn, run through crashes, held against the truth.

Some start from a snapshot, some have thousands of events, some sums that are exact and must be; in some an attempt that
was thought dead goes on beside the next one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.plan import compile_plan
from freshet.operators.base_image import build_image
from freshet.operators.epochs.config import WAITING_BYTES
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import KEPT, segments_in
from freshet.operators.inbox import INBOX_BYTES
from freshet.operators.settings import Settings
from freshet.partitioner.config import STRATEGIES
from freshet.partitioner.events import Events
from tests.support.graphs.models import IN_WIDTH, all_small_models, exact_small_models, random_model
from tests.support.graphs.streams import Record, random_records, to_events
from tests.support.simulation.keys import draw_keys
from tests.support.simulation.lanes import draw_readers, has_readers
from tests.support.simulation.left_out import leave_a_page_out
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, job_settings, sealed_by
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.reopened import ONE_SEGMENT, open_log, reopen
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.simulation.times import draw_times
from tests.support.stages.cuts import copied

LONG_EVERY = 33  # one seed of so many has thousands of events
BREAKAGES = ("page", "cut", "cut in the middle", "cut at the tail")


@dataclass(frozen=True)
class Case:
    """What a seed draws."""

    seed: int
    model: str
    settings: Settings
    plan_model: Model | KindsModel
    events: Events
    faults: Faults
    page_bytes: int
    spread_epochs: int
    snapshot: Events | None = None

    @property
    def plan(self) -> AnyPlan:
        """The compiled model."""
        return compile_plan(_model(self.model))

    def __str__(self) -> str:
        options = self.settings.partitioning
        partitions = len(set(zip(self.events.source.tolist(), self.events.partition.tolist(), strict=True)))
        given = 0 if self.snapshot is None else len(self.snapshot)
        named = {
            "undirected": options.undirected,
            "string ids": self.strings,
            "exact": self.exact,
            "epochs that adapt": self.settings.sealing.latency_target_ms > 0,
            f"a snapshot of {given} events": given > 0,
            f"{options.edge_keys} keys": options.edge_keys != "",
            f"intervals of {self.settings.sealing.epoch_event_time_ms} ms": self.settings.sealing.epoch_event_time_ms
            > 0,
            f"edges that expire after {options.edge_ttl_ms} ms": options.edge_ttl_ms > 0,
            "readers": has_readers(self.settings, self.seed),
            "attempts that linger": self.faults.linger > 0,
        }
        flags = [name for name, on in named.items() if on]
        return (
            f"seed {self.seed}: {self.model}, {self.settings.parts} parts, {options.strategy} "
            f"(threshold {options.hybrid_threshold}), {len(self.events)} events in epochs of "
            f"{self.settings.sealing.epoch_events}, types {len(self.events.types)}, pages of {self.page_bytes} bytes, "
            f"sweeps of {self.spread_epochs} epochs, {partitions} partitions, up to {self.faults.crashes} crashes"
            + "".join(f", {flag}" for flag in flags)
        )

    def judge(self, run: Simulation) -> tuple[int, float]:
        """Hold every epoch against a full pass; how many rows were compared, and the largest error."""
        assert isinstance(self.plan_model, Model)
        return assert_exact(self.plan_model, self.events, run, bitwise=self.exact, snapshot=self.snapshot)

    @property
    def exact(self) -> bool:
        """Whether all sums are exact, so that embeddings must equal a full pass bit by bit."""
        return self.model.startswith("exact ")

    @property
    def strings(self) -> bool:
        """Whether ids are strings."""
        return self.settings.id_kind == "string"


@dataclass(frozen=True)
class Result:
    """What was checked."""

    epochs: int
    crashes: int
    rows: int
    markers: int
    kept: int  # segments of the cut log that it has let go of
    lost_cuts: int  # lines that the cut log has lost on purpose
    aside_bytes: dict[str, int]  # by level, the most that waited in one stage's file
    lingered: int = 0  # crashes of which the attempt went on
    worst: float = 0.0  # largest error of an embedding, relative to its own scale


def _model(name: str) -> Model:
    kind, _, rest = name.partition(" ")
    if kind == "exact":
        return exact_small_models()[rest]()
    return random_model(int(rest)) if kind == "random" else all_small_models()[name]()


def draw(seed: int) -> Case:
    """Everything but the schedule, which the simulation draws from the same seed."""
    rng = random.Random(seed)
    name = rng.choice([*sorted(all_small_models()), *[f"random {number}" for number in range(60)]])
    if exact := random.Random(f"exact {seed}").random() < 0.15:
        name = f"exact {random.Random(f'exact model {seed}').choice(sorted(exact_small_models()))}"
    model, parts = _model(name), rng.randint(1, 4)
    typed, strings = rng.random() < 0.25, rng.random() < 0.25
    count, is_long = rng.randint(50, 110), seed % LONG_EVERY == LONG_EVERY // 2
    records = _records(
        rng,
        random.Random(f"length {seed}").randint(1500, 4000) if is_long else count,
        vertices=rng.choice([6, 9, 40]),
        types=("a", "b") if typed else (),
        strings=strings,
        weighted=rng.random() < 0.7,
        integer=exact,
    )
    events = to_events(records, IN_WIDTH, edge_width=model.edge_features)
    settings = job_settings(
        model,
        parts,
        random.Random(f"epochs {seed}").randint(15, 60) if is_long else rng.randint(4, 14),
        strategy=rng.choice(STRATEGIES),
        undirected=rng.random() < 0.25,
        hybrid_threshold=rng.randint(0, 4),
        id_kind="string" if strings else "int",
        hash_seed=seed,
    )
    waiting_bytes = (0, 2000, WAITING_BYTES)[seed // 3 % 3]
    settings = sealed_by(settings, marker_interval_ms=rng.choice([1, 4, 15]), waiting_bytes=waiting_bytes)
    settings = sealed_by(settings, publish_ms=(0, 10, 60)[seed // 2 % 3])
    if random.Random(f"adapts {seed}").random() < 0.3:  # blocks wait for up to 15 ms of a clock that steps by 1 to 30
        settings = sealed_by(settings, latency_target_ms=30)
    if seed % 4 == 0:  # as fast as by the clock: a journal of a few blocks, or of the state's bytes where they are more
        settings = sealed_by(settings, marker_interval_ms=10**9, journal_bytes=1000)
    events, settings = through_partitions(seed, events, settings)
    pages, spread = rng.choice([1, 1, 512, 1 << 16]), rng.choice([1, 4, 200])
    snapshot = _snapshot(seed, typed, strings, exact, model)
    events, settings, snapshot = draw_times(seed, events, settings, snapshot)
    events, settings, snapshot = draw_keys(seed, events, settings, snapshot)
    case = Case(seed, name, settings, model, events, NO_FAULTS, pages, spread, snapshot)
    return replace(case, faults=faults_of(seed, rng, case))


def _records(rng: random.Random, count: int, *, types: tuple[str, ...] = (), **options: Any) -> list[Record]:
    """Random events; GCN layers refuse a second self-loop of a vertex."""
    records = random_records(rng, count, IN_WIDTH, types=types, **options)
    for record in records:
        if types and "src" in record and record["src"] == record["dst"] and rng.random() < 0.5:
            record["type"] = rng.choice(["a", "b"])
    return records


def _snapshot(seed: int, typed: bool, strings: bool, exact: bool, model: Model) -> Events | None:
    """In a third of the cases the graph that the job starts from: additions alone, and no self-loop of a type."""
    rng = random.Random(f"snapshot {seed}")
    if rng.random() > 0.35:
        return None
    types = ("a", "b") if typed else ()
    records = random_records(
        rng, rng.choice([3, 40, 150]), IN_WIDTH, vertices=rng.choice([6, 12, 50]), types=types, strings=strings,
        integer=exact,
    )  # fmt: skip
    given = [record for record in records if record["op"].startswith("add_")]
    return to_events(given, IN_WIDTH, edge_width=model.edge_features) if given else None


def faults_of(seed: int, rng: random.Random, case: Case) -> Faults:
    """How a case fails."""
    settings, parts, events = case.settings, case.settings.parts, case.events
    # a delivery is a step; so much of them an epoch has, with parts dealt to half as many tasks on average
    layers, tasks = len(case.plan.layers), (1 + parts) / 2
    steps_per_epoch = 1.3 * tasks * (1 + tasks * (1 + layers * (1 if parts == 1 else 3)))
    steps = steps_per_epoch * (len(events) / settings.sealing.epoch_events + 3)
    return Faults(
        barrier=rng.choice([0.3, 1.0, 2.0]) / steps_per_epoch,
        tick=rng.choice([0.3, 0.6, 2.0]) / steps_per_epoch,
        feed=min(0.8, rng.choice([0.5, 1.0, 4.0]) / steps_per_epoch),
        crashes=rng.randint(1, 3),
        crash=rng.choice([2, 5]) / steps,
        inbox_bytes=(0, 4000, INBOX_BYTES)[seed % 3],
        linger=0.7 if random.Random(f"linger {seed}").random() < 0.5 else 0.0,
    )


def through_partitions(seed: int, events: Events, settings: Settings) -> tuple[Events, Settings]:
    """In three of five cases most events come from the partitions of a topic (source 1), some in one message."""
    rng = random.Random(f"partitions {seed}")  # of its own: the other cases stay what they were
    partitions = rng.choice([0, 0, 1, 2, 5])
    if not partitions:
        return events, settings
    source, partition, position = [], [], []
    ends: dict[tuple[int, int], int] = {}
    for _ in range(len(events)):
        place = (1, rng.randrange(partitions)) if rng.random() < 0.8 else (0, 0)
        same = place[0] == 1 and ends.get(place, 0) > 0 and rng.random() < 0.3
        ends[place] = ends.get(place, 0) + (0 if same else rng.choice([1, 1, 3]) if place[0] else 1)
        source.append(place[0])
        partition.append(place[1])
        position.append(ends[place])
    taken = replace(
        events,
        source=np.array(source, np.int16),
        partition=np.array(partition, np.int16),
        position=np.array(position, np.int64),
    )
    return taken, replace(settings, topics=(1,))


Hook = Callable[[Simulation], None]


def simulate(case: Case, log: CutLog, seed: int, faults: Faults, hook: Hook | None = None) -> Simulation:
    """A finished simulation of the case."""
    if log.path is None:  # nobody takes it over: all attempts would have the same one
        faults = replace(faults, linger=0.0)
    with ExitStack() as stack:
        settings = case.settings
        if case.snapshot is not None:
            image = stack.enter_context(TemporaryDirectory(prefix="freshet-image-"))
            settings = replace(settings, image=image)
        simulation = Simulation(settings, case.plan, case.events, log, seed, faults)
        if has_readers(settings, case.seed):
            draw_readers(simulation, seed)

        def spread(stage: Any) -> None:
            stage.sweeper._spread = case.spread_epochs

        simulation.on_stage = spread
        if hook is not None:
            hook(simulation)
        stack.enter_context(page_bytes(case.page_bytes))
        if case.snapshot is not None:
            _build_image(case, simulation)
        simulation.run()
    return simulation


def _build_image(case: Case, simulation: Simulation) -> None:
    """Epoch 0, of which the simulation's sinks get the rows."""
    assert case.snapshot is not None
    with patch("freshet.operators.base_image.plan_of", lambda _: case.plan):
        build_image(simulation.settings, [case.snapshot], core_of=simulation.core_of)


def check(case: Case, broken: str = "") -> Result:
    """Run the case through its crashes; every epoch must equal the oracle, and a run without crashes bit by bit.

    `broken` is what to break on purpose, one of BREAKAGES; then markers, checkpoints and crashes come more often.
    Raises: AssertionError, or whatever notices that something is wrong.
    """
    if broken:
        case = eager(case, ticking=broken == "cut at the tail")
        case = replace(case, faults=replace(case.faults, linger=0.0))  # what is lost is lost at once
    lost = [0]
    with TemporaryDirectory(prefix="freshet-simulation-") as folder:
        path = Path(folder) / "cuts"
        log = open_log(path, ONE_SEGMENT if broken.startswith("cut") else 1)
        run = simulate(case, log, case.seed, case.faults, _hook(case, path, broken, lost))
        run.log.close()
        kept = len(segments_in(path / KEPT))
        # Without what an attempt that was thought dead has cut behind the end.
        cuts = run.log = copied(CutLog(path), run.log.last)
    judged = case.judge(run)
    calm = simulate(case, cuts, case.seed + 1, NO_FAULTS)
    assert list(calm.log.cuts.values()) == list(run.log.cuts.values()), "the run without crashes cut otherwise"
    calm_rows, run_rows = calm.rows(), run.rows()
    assert sorted(calm_rows) == sorted(run_rows)
    for epoch, expected in calm_rows.items():
        assert run_rows[epoch] == expected, f"epoch {epoch} differs from the run without crashes"
    markers = sum(cut.marker for cut in cuts.cuts.values())
    rows, worst = judged
    return Result(len(calm_rows), run.crashes, rows, markers, kept, lost[0], run.aside_bytes, run.lingered, worst)


def eager(case: Case, *, ticking: bool = False) -> Case:
    """The case with more markers, checkpoints and crashes; `ticking`: with more cuts by the clock instead.

    Of a long stream only the beginning: its epochs become many.
    """
    faults = replace(case.faults, crashes=3, crash=case.faults.crash / 4)
    if ticking:
        faults.tick *= 4
    else:
        faults.barrier *= 4
    settings = sealed_by(case.settings, marker_interval_ms=1, epoch_events=4)
    return replace(case, faults=faults, settings=settings, events=case.events.slice(0, min(len(case.events), 120)))


def _hook(case: Case, path: Path, broken: str, lost: list[int]) -> Hook:
    if broken.startswith("cut"):
        return lose_a_cut(case, path, broken.removeprefix("cut").strip(), lost)

    def hook(simulation: Simulation) -> None:
        simulation.log.retention = simulation.checkpoints
        simulation.before_restore = lambda: reopen(simulation, path)
        if broken == "page":
            with_kinds = isinstance(case.plan, KindsPlan)
            leave_a_page_out(case.seed, case.settings.parts, with_kinds=with_kinds)(simulation)

    return hook


# -- jobs that are broken on purpose ----------------------------------------------------------------------------------


def lose_a_cut(case: Case, path: Path, where: str, lost: list[int]) -> Hook:
    """At each crash the cut log loses a line before the last one, or the last ones; `lost` counts them."""
    rng = random.Random(f"cut {case.seed}")

    def lose(lines: list[bytes]) -> None:
        before = len(lines)
        if (where or rng.choice(["in the middle", "at the tail"])) == "at the tail":
            del lines[max(0, len(lines) - rng.randint(1, 10)) :]
        elif len(lines) > 1:
            del lines[rng.randrange(len(lines) - 1)]
        lost[0] += before - len(lines)

    def hook(simulation: Simulation) -> None:
        simulation.log.retention = simulation.checkpoints
        simulation.before_restore = lambda: reopen(simulation, path, lose)

    return hook


def wrong_seeds(seeds: range, broken: str = "") -> tuple[dict[int, str], list[Result]]:
    """What was noticed, by seed, and the results of the others."""
    wrong: dict[int, str] = {}
    results = []
    for seed in seeds:
        try:
            results.append(check(draw(seed), broken))
        except Exception as error:
            wrong[seed] = f"{type(error).__name__}: {str(error)[:300]}"
    return wrong, results
