"""Random jobs for the simulator, each a function of its seed: drawn, run through crashes, held against the truth."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gnn.model import Model
from gnn.plan import Plan, compile_plan
from operators.cut_log import CutLog
from operators.factory import Settings
from operators.inbox import INBOX_BYTES
from operators.lanes import WAITING_BYTES
from operators.simulation import Faults, Simulation
from partitioner.config import STRATEGIES
from partitioner.events import Events
from state.sweep import Mutations, Sweeper
from tests.support.models import IN_WIDTH, all_small_models, random_model
from tests.support.oracle import NO_FAULTS, assert_exact, job_settings
from tests.support.pages import page_bytes
from tests.support.streams import random_records, to_events

BREAKAGES = ("page", "cut", "cut in the middle", "cut at the tail")


@dataclass(frozen=True)
class Case:
    """What a seed draws."""

    seed: int
    model: str
    settings: Settings
    plan_model: Model
    events: Events
    faults: Faults
    page_bytes: int
    spread_epochs: int

    @property
    def plan(self) -> Plan:
        """The compiled model."""
        return _plan(self.model)

    def __str__(self) -> str:
        options = self.settings.partitioner
        partitions = len(set(zip(self.events.source.tolist(), self.events.partition.tolist(), strict=True)))
        flags = [name for name, on in (("undirected", options["undirected"]), ("string ids", self.strings)) if on]
        return (
            f"seed {self.seed}: {self.model}, {self.settings.parts} parts, {options['strategy']} "
            f"(threshold {options['hybrid_threshold']}), {len(self.events)} events in epochs of "
            f"{self.settings.epoch_events}, types {len(self.events.types)}, pages of {self.page_bytes} bytes, "
            f"sweeps of {self.spread_epochs} epochs, {partitions} partitions, up to {self.faults.crashes} crashes"
            + "".join(f", {flag}" for flag in flags)
        )

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
    lost_cuts: int  # lines that the cut log has lost on purpose
    aside_bytes: dict[str, int]  # by level, the most that waited in one stage's file


@cache
def _model(name: str) -> Model:
    kind, _, number = name.partition(" ")
    return random_model(int(number)) if kind == "random" else all_small_models()[name]()


@cache
def _plan(name: str) -> Plan:
    return compile_plan(_model(name))


def draw(seed: int) -> Case:
    """Everything but the schedule, which the simulation draws from the same seed."""
    rng = random.Random(seed)
    name = rng.choice([*sorted(all_small_models()), *[f"random {number}" for number in range(60)]])
    model, parts = _model(name), rng.randint(1, 4)
    typed, strings = rng.random() < 0.25, rng.random() < 0.25
    records = random_records(
        rng,
        rng.randint(50, 110),
        IN_WIDTH,
        vertices=rng.choice([6, 9, 40]),
        types=("a", "b") if typed else (),
        strings=strings,
        weighted=rng.random() < 0.7,
    )
    for record in records:  # GCN layers refuse a second self-loop of a vertex
        if typed and "src" in record and record["src"] == record["dst"] and rng.random() < 0.5:
            record["type"] = rng.choice(["a", "b"])
    events = to_events(records, IN_WIDTH)
    settings = job_settings(
        model,
        parts,
        rng.randint(4, 14),
        strategy=rng.choice(STRATEGIES),
        undirected=rng.random() < 0.25,
        hybrid_threshold=rng.randint(0, 4),
        id_kind="string" if strings else "int",
    )
    waiting_bytes = (0, 2000, WAITING_BYTES)[seed // 3 % 3]
    settings = replace(settings, marker_interval_ms=rng.choice([1, 4, 15]), waiting_bytes=waiting_bytes)
    if seed % 4 == 0:  # as fast as by the clock: a journal of a few blocks, or of the state's bytes where they are more
        settings = replace(settings, marker_interval_ms=10**9, journal_bytes=1000)
    events, settings = _through_partitions(seed, events, settings)
    # a delivery is a step; so much of them an epoch has
    layers = len(compile_plan(model).layers)
    steps_per_epoch = 1.3 * parts * (1 + parts * (1 + layers * (1 if parts == 1 else 3)))
    steps = steps_per_epoch * (len(events) / settings.epoch_events + 3)
    faults = Faults(
        barrier=rng.choice([0.3, 1.0, 2.0]) / steps_per_epoch,
        tick=rng.choice([0.3, 0.6, 2.0]) / steps_per_epoch,
        feed=min(0.8, rng.choice([0.5, 1.0, 4.0]) / steps_per_epoch),
        crashes=rng.randint(1, 3),
        crash=rng.choice([2, 5]) / steps,
        inbox_bytes=(0, 4000, INBOX_BYTES)[seed % 3],
    )
    return Case(seed, name, settings, model, events, faults, rng.choice([1, 1, 512, 1 << 16]), rng.choice([1, 4, 200]))


def _through_partitions(seed: int, events: Events, settings: Settings) -> tuple[Events, Settings]:
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
    columns = {"source": np.array(source, np.int16), "partition": np.array(partition, np.int16)}
    return replace(events, position=np.array(position, np.int64), **columns), replace(settings, topics=(1,))


Hook = Callable[[Simulation], None]


def simulate(case: Case, log: CutLog, seed: int, faults: Faults, hook: Hook | None = None) -> Simulation:
    """A finished simulation of the case."""
    simulation = Simulation(case.settings, case.plan, case.events, log, seed, faults)

    def spread(stage: Any) -> None:
        stage.sweeper._spread = case.spread_epochs

    simulation.on_stage = spread
    if hook is not None:
        hook(simulation)
    pages: AbstractContextManager[None] = page_bytes(case.page_bytes)
    with pages:
        simulation.run()
    return simulation


def check(case: Case, broken: str = "") -> Result:
    """Run the case through its crashes; every epoch must equal the oracle, and a run without crashes bit by bit.

    `broken` is what to break on purpose, one of BREAKAGES; then markers, checkpoints and crashes come more often.
    Raises: AssertionError, or whatever notices that something is wrong.
    """
    if broken:
        case = eager(case, ticking=broken == "cut at the tail")
    lost = [0]
    with TemporaryDirectory(prefix="freshet-simulation-") as folder:
        path = Path(folder) / "cuts.jsonl"
        run = simulate(case, CutLog(path), case.seed, case.faults, _hook(case, path, broken, lost))
        run.log.close()
    rows = assert_exact(case.plan_model, case.events, run)
    cuts = CutLog()
    for cut in run.log.cuts.values():
        cuts.append(cut)
    calm = simulate(case, cuts, case.seed + 1, NO_FAULTS)
    assert list(calm.log.cuts.values()) == list(run.log.cuts.values()), "the run without crashes cut otherwise"
    calm_rows, run_rows = calm.rows(), run.rows()
    assert sorted(calm_rows) == sorted(run_rows)
    for epoch, expected in calm_rows.items():
        assert run_rows[epoch] == expected, f"epoch {epoch} differs from the run without crashes"
    markers = sum(cut.marker for cut in cuts.cuts.values())
    return Result(len(calm_rows), run.crashes, rows, markers, lost[0], run.aside_bytes)


def eager(case: Case, *, ticking: bool = False) -> Case:
    """The case with more markers, checkpoints and crashes; `ticking`: with more cuts by the clock instead."""
    faults = replace(case.faults, crashes=3, crash=case.faults.crash / 4)
    if ticking:
        faults.tick *= 4
    else:
        faults.barrier *= 4
    return replace(case, faults=faults, settings=replace(case.settings, marker_interval_ms=1, epoch_events=4))


def _hook(case: Case, path: Path, broken: str, lost: list[int]) -> Hook:
    if broken.startswith("cut"):
        return lose_a_cut(case, path, broken.removeprefix("cut").strip(), lost)

    def hook(simulation: Simulation) -> None:
        simulation.before_restore = lambda: reopen(simulation, path)
        if broken == "page":
            leave_a_page_out(case)(simulation)

    return hook


def reopen(simulation: Simulation, path: Path, lost: Callable[[list[bytes]], None] | None = None) -> None:
    """What a process finds that starts anew: the cut log's file, its last line torn."""
    simulation.log.close()
    if lost is not None:
        lines = path.read_bytes().splitlines(keepends=True)
        lost(lines)
        path.write_bytes(b"".join(lines))
    with path.open("ab") as file:
        file.write(b"[999,1")
    simulation.log = CutLog(path)


# -- jobs that are broken on purpose ----------------------------------------------------------------------------------


# Not the Partitioner's: without a page of its edges it would follow links in circles.
_TABLES = {
    "FeatureStorage": ["x", "flags"],
    "LayerStorage": ["z", "s", "local", "flags", "in.head", "x"],
    "LayerTail": ["partial", "index", "flags", "x"],
}


class LeavesPagesOut(Sweeper):
    """A sweep that leaves one page out: always the same one."""

    left_out = ""

    def _write(self, limit: int | None) -> Mutations:
        out = super()._write(limit)
        out.puts = [(key, value) for key, value in out.puts if not key.startswith(f"{self.left_out}@")]
        return out


def leave_a_page_out(case: Case) -> Hook:
    """The first page of one table of one operator never becomes durable."""
    rng = random.Random(f"page {case.seed}")

    def hook(simulation: Simulation) -> None:
        kind = rng.choice([*_TABLES][: 3 if case.settings.parts > 1 else 2])
        table, before = rng.choice(_TABLES[kind]), simulation.on_stage

        def on_stage(stage: Any) -> None:
            before(stage)
            if type(stage.core).__name__ == kind:
                stage.sweeper.__class__ = LeavesPagesOut
                stage.sweeper.left_out = f"{table}/0"

        simulation.on_stage = on_stage

    return hook


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
