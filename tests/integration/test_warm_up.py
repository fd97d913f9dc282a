"""`freshet warm-up` compiles all that any job calls: after it jobs of every shape compile nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freshet.job.machine.kernels import are_ready, compile_ahead
from tests.support.graphs.random_graphs import random_graph
from tests.support.runs.jobs import DEADLINE_S, NO_SUMS, NO_SUMS_EITHER, ROOT, Job, make_input
from tests.support.runs.kernels import copy_of_cache, kernels_in, some_of_cache
from tests.support.stages.embedded import write_graph

SPLIT = ("--hybrid-threshold", "5")
# Of every job of sums, each for one kind of arguments; they take two thirds of the time of its kernels.
LARGEST = ("merge_epoch", "close_epoch", "apply_events", "take_out", "put_in", "link_edges", "_place")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the cache after a warm-up."""
    if not are_ready():
        compile_ahead()
    return copy_of_cache(tmp_path_factory.mktemp("kernels") / "warm")


@pytest.mark.long
def test_a_second_warm_up_compiles_nothing(cache: Path) -> None:
    before = kernels_in(cache)
    command = [sys.executable, "-m", "freshet.job.cli", "warm-up"]
    environ = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["compiled"] == 0 < result["kernels"]
    assert result["folder"] == str(cache)
    assert "compiling kernels" in done.stderr
    assert kernels_in(cache) == before


@pytest.mark.parametrize(
    ("ids", "options"),
    [
        ("int", ("--runtime", "local", "--parts", "1")),
        ("int", ("--runtime", "local", "--parts", "4", "--undirected")),
        ("string", ("--runtime", "local", "--parts", "1", "--partitioner", "hdrf")),
        ("int", ("--runtime", "local", "--parts", "20")),
        ("int", ("--runtime", "flink", "--parts", "3", "--parallelism", "2")),
        pytest.param("string", ("--runtime", "flink", "--parts", "2", "--parallelism", "1"), marks=pytest.mark.long),
    ],
)
def test_after_it_a_job_compiles_nothing(ids: str, options: tuple[str, ...], cache: Path, tmp_path: Path) -> None:
    before = kernels_in(cache)
    named = {"strings": True} if ids == "string" else {"snapshot": True}
    job = Job(make_input(tmp_path / "input", 2000, **named), tmp_path / "out")
    job.environ = {"NUMBA_CACHE_DIR": str(cache)}
    try:
        job.done(*options, "--epoch-events", "50", "--epoch-ms", "0", "--hybrid-threshold", "5")
        assert "compiling kernels" not in job.log()
        job.check()
    finally:
        job.end()
    assert sorted(kernels_in(cache) - before) == []


@pytest.mark.parametrize(("parts", "layers"), [("1", NO_SUMS), ("4", NO_SUMS), ("4", NO_SUMS_EITHER)])
def test_neither_does_one_with_other_synopses(parts: str, layers: Any, cache: Path, tmp_path: Path) -> None:
    before = kernels_in(cache)
    job = Job(make_input(tmp_path / "input", 2000, layers=layers, snapshot=True), tmp_path / "out")
    job.environ = {"NUMBA_CACHE_DIR": str(cache)}
    try:
        job.done("--runtime", "local", "--parts", parts, "--epoch-events", "50", "--epoch-ms", "0", *SPLIT)
        job.check()
    finally:
        job.end()
    assert sorted(kernels_in(cache) - before) == []


@pytest.mark.long
def test_a_first_run_compiles_what_its_model_needs_and_no_more(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    every = copy_of_cache(tmp_path / "all")
    some_of_cache(every, cache, *LARGEST)
    options = ("--runtime", "local", "--parts", "3", "--epoch-events", "50", "--epoch-ms", "0", *SPLIT)
    seen = list[set[str]]()
    for number, named in enumerate(({}, {"snapshot": True}, {"strings": True})):
        folder = tmp_path / str(number)
        job = Job(make_input(folder / "in", 1000, **named), folder / "out", {"NUMBA_CACHE_DIR": str(cache)})
        try:
            job.done(*options)
            assert ("compiling kernels" in job.log()) == (number == 0)
        finally:
            job.end()
        seen.append(kernels_in(cache))
        assert sorted(seen[number] - seen[0]) == []
    assert 20 < len(seen[0]) < 0.7 * len(kernels_in(every))


def test_neither_does_one_that_goes_on_after_a_kill(cache: Path, tmp_path: Path) -> None:
    before = kernels_in(cache)
    job = Job(make_input(tmp_path / "input", 20_000), tmp_path / "out", {"NUMBA_CACHE_DIR": str(cache)})
    try:
        options = ("--runtime", "local", "--parts", "3", "--epoch-events", "20", "--epoch-ms", "0")
        slow = {"slow": {"parser": 150}, "chunk": 100}  # so that it is killed in mid-stream
        job.start(*options, "--checkpoint-interval", "200ms", faults=slow)
        job.until_epoch(30)
        job.kill()
        job.done("--resume", "latest")
    finally:
        job.end()
    assert sorted(kernels_in(cache) - before) == []


@pytest.mark.parametrize("ids", ["int", "string"])
def test_neither_does_an_embedding(ids: str, cache: Path, tmp_path: Path) -> None:
    before = kernels_in(cache)
    given = make_input(tmp_path / "input", 10, vertices=2000, snapshot=True)
    assert given.snapshot is not None
    if ids == "string":
        graph = random_graph(1, vertices=2000, edges=8000)
        names = [f"v{k}" for k in range(2000)]
        write_graph(given.snapshot, graph, names)
    serving = ["--memory", "3MiB", "--for", "serving"]
    kinds = (
        ["--passes", "1", *serving],
        ["--order", "completion", "--eviction", "next-use", *serving],
        ["--parts", "2", "--memory", "8MiB"],
    )
    for number, options in enumerate(kinds):
        command = [
            sys.executable,
            "-m",
            "freshet.job.cli",
            "embed",
            "--model",
            given.model,
            "--snapshot",
            given.snapshot,
        ]
        command += ["--out", tmp_path / str(number), *options]
        environ = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
        done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environ, capture_output=True, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr.decode()
    assert sorted(kernels_in(cache) - before) == []
