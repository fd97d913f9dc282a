"""Simulated jobs: any order of delivery, checkpoints, crashes; and what must be noticed when something is broken.

A seed is replayed by `python scripts/drills/simulate.py --seed N`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.sink.core import Sink
from freshet.operators.sink.task import of_task
from freshet.state.sweep import Mutations, Sweeper
from freshet.state.table import DIRTY, Table
from tests.support.simulation.drawn import Case, draw, eager, simulate, wrong_seeds
from tests.support.simulation.oracle import NO_FAULTS, sealed_by
from tests.support.simulation.reopened import open_log, reopen
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.stages.cuts import copied
from tests.support.stages.sunk import sink_of

ROOT = Path(__file__).resolve().parents[2]
# FRESHET_SEEDS=1000 for what a change of state, cuts or replay should pass: five minutes.
SOME, SEEDS, CHUNK = 12, int(os.environ.get("FRESHET_SEEDS", "44")), 44


def test_a_seed_draws_the_same_case_again() -> None:
    assert str(draw(11)) == str(draw(11))
    assert draw(11).events.encode() == draw(11).events.encode()
    assert len({str(draw(seed)) for seed in range(20)}) == 20


def test_some_seeds() -> None:
    """The first ones, for those who can't wait."""
    wrong, results = wrong_seeds(range(SOME))
    assert not wrong
    assert sum(result.crashes > 0 for result in results) > 6


@pytest.mark.slow
def test_many_seeds() -> None:
    """Every epoch equals the oracle, and a run without crashes bit by bit."""
    chunks = [range(first, min(first + CHUNK, SEEDS)) for first in range(SOME, SEEDS, CHUNK)]
    seeds = SEEDS - SOME
    wrong: dict[int, str] = {}
    results = []
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for noticed, fine in (pool.map if len(chunks) > 1 else map)(wrong_seeds, chunks):
            wrong |= noticed
            results += fine
    replay = "".join(f"\n{text}\n    python scripts/drills/simulate.py --seed {seed}" for seed, text in wrong.items())
    assert not wrong, replay
    assert len(results) == seeds
    assert sum(result.crashes > 0 for result in results) > 0.7 * seeds
    assert sum(result.crashes > 0 and result.markers > 1 for result in results) > 0.4 * seeds
    assert sum(result.rows for result in results) > 100 * seeds
    assert sum(result.crashes > 0 and result.kept > 0 for result in results) > 0.1 * seeds
    for level in ("inbox_file_bytes", "waiting_file_bytes"):
        assert sum(result.aside_bytes[level] > 0 for result in results) > 0.2 * seeds, level


# -- broken on purpose ------------------------------------------------------------------------------------------------


def noticed(seeds: int, broken: str, **least: int) -> list[str]:
    """The kinds of errors of the first of these seeds: as many as it takes to see so many of each kind, and of all."""
    kinds: list[str] = []
    for first in range(0, seeds, 5):
        wrong, _ = wrong_seeds(range(first, first + 5), broken)
        kinds += [text.split(":")[0] for text in wrong.values()]
        if all((len(kinds) if kind == "all" else kinds.count(kind)) >= count for kind, count in least.items()):
            return kinds
    raise AssertionError(f"in {seeds} seeds: {kinds}")


def test_a_page_that_a_sweep_leaves_out_is_noticed() -> None:
    """A page matters only if a restore reads it and it had changed."""
    kinds = set(noticed(60, "page", all=4))
    assert kinds <= {"AssertionError", "LostUpdateError", "IndexError", "BadEpochError"}


def test_a_cut_lost_in_the_middle_is_always_noticed() -> None:
    wrong, results = wrong_seeds(range(30), "cut in the middle")
    assert not any(result.lost_cuts for result in results), "no crash gets away with it"
    assert len(wrong) >= 15
    assert {text.split(":")[0] for text in wrong.values()} == {"LostCutError"}


def test_cuts_lost_at_the_tail_are_noticed() -> None:
    """Cuts that the state has passed are missed at once; cuts beyond it when they come out otherwise (by the clock)."""
    assert noticed(80, "cut at the tail", LostCutError=4, AssertionError=2)


def test_the_command_names_the_seed_that_is_wrong() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "drills" / "simulate.py"), "--seed", "0", "--count", "40"]
    done = subprocess.run([*command, "--break", "page"], capture_output=True, text=True, timeout=250, check=False)
    lines = done.stdout.strip().splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[0].startswith("seed 0: ")
    assert "; again: python scripts/drills/simulate.py --seed " in lines[-1]
    assert lines[-1].endswith("--break page")
    command[-1] = "1"
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("1 seeds")


class Watchful(Sweeper):
    """Looks, at each marker, whether a page has changed since the last one without having been touched."""

    pages: dict[str, np.ndarray]

    def restore(self, *items: Iterable[tuple[str, bytes]]) -> int:
        epoch = super().restore(*items)
        self.pages = {table.name: self._parts_of(table) for table in self.tables}
        return epoch

    @staticmethod
    def _parts_of(table: Table) -> np.ndarray:
        return table.data.reshape(table.parts, -1, *table.data.shape[1:]).copy()

    def mark(self, epoch: int) -> dict[int, Mutations]:
        for table in self.tables:
            before, now = self.pages[table.name], self._parts_of(table)
            shape = (table.parts, now.shape[1] - before.shape[1], *now.shape[2:])
            grown = np.full(shape, table.fill, now.dtype)
            if not now.size:
                continue
            rows = len(table.data) >> table.shift, -1
            old = np.concatenate([before, grown], axis=1).reshape(rows).view(f"u{now.itemsize}")
            changed = (old != now.reshape(rows).view(old.dtype)).any(axis=1)
            wrong = np.flatnonzero(changed & (table._flags != DIRTY))
            assert not wrong.size, f"page {wrong[0]} of {table.name} changed unnoticed, by epoch {epoch}"
            self.pages[table.name] = now
        return super().mark(epoch)


def test_no_page_changes_unnoticed() -> None:
    """What is not touched is not durable; a crash shows it only where nothing else touches the page."""
    marks = 0
    for seed in range(400, 424):
        case = replace(eager(draw(seed)), page_bytes=1, faults=NO_FAULTS)
        settings = sealed_by(case.settings, marker_interval_ms=0, journal_bytes=10**9)

        def watch(simulation: Simulation) -> None:
            simulation.on_stage = lambda stage: setattr(stage.sweeper, "__class__", Watchful)

        run = simulate(replace(case, settings=settings), CutLog(), seed, NO_FAULTS, watch)
        marks += sum(cut.marker for cut in run.log.cuts.values())
    assert marks > 160, marks


# -- the real Sink ----------------------------------------------------------------------------------------------------


def change_log(case: Case, out: Path, faults: Faults, log: CutLog) -> tuple[pa.Table, Simulation]:
    """The rows of the change log that a run of the case leaves behind, by epoch and id."""

    def hook(simulation: Simulation) -> None:
        if (path := log.path) is not None:
            simulation.before_restore = lambda: reopen(simulation, path)
        settings = case.settings
        sizes = {"rows": 40, "group_rows": 30}

        def sink(part: int) -> Sink:
            return sink_of(out, part, settings.id_kind, width=case.plan.out_width, sources=["file", "topic"], **sizes)

        simulation.make_sink = lambda parts: of_task([sink(part) for part in parts], settings.parts)

    simulation = simulate(case, log, case.seed, faults, hook)
    files = sorted(path for path in (out / "embeddings").glob("*.parquet") if path.name[0] not in "._")
    return pa.concat_tables([pq.read_table(path) for path in files]).sort_by(
        [("epoch", "ascending"), ("id", "ascending")]
    ), simulation


def positions(out: Path) -> pa.Table:
    """What each epoch read."""
    tables = [pq.read_table(path) for path in (out / "epochs").glob("[!._]*.parquet")]
    order = [(name, "ascending") for name in ("epoch", "source", "partition")]
    return pa.concat_tables(tables).sort_by(order)


def test_crashes_leave_no_trace_in_the_change_log(tmp_path: Path) -> None:
    crashes = files = epoch_files = published = 0
    for seed in range(200, 214):
        case = eager(draw(seed))
        log = open_log(tmp_path / f"{seed}-cuts" / "cuts.jsonl")
        rows, run = change_log(case, tmp_path / f"{seed}-crashed", case.faults, log)
        run.log.close()
        cuts = copied(CutLog(log.path), run.log.last)
        expected, _ = change_log(case, tmp_path / f"{seed}-calm", NO_FAULTS, cuts)
        assert rows.equals(expected), seed
        assert positions(tmp_path / f"{seed}-crashed").equals(positions(tmp_path / f"{seed}-calm")), seed
        assert rows.num_rows > 10
        crashes += run.crashes
        files += len(list((tmp_path / f"{seed}-calm" / "embeddings").iterdir()))
        epoch_files += len(list((tmp_path / f"{seed}-calm" / "epochs").iterdir()))
        published += sum(cut.publish and not cut.marker for cut in cuts.cuts.values())
    assert crashes > 17
    assert files > 55
    assert epoch_files < files / 3
    assert published > 5
