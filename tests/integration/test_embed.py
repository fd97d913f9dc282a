"""`freshet embed` as a process: what it writes, and what is left of it after kills, full disks and damaged files."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.gnn.model import save_model
from freshet.gnn.plan import compile_plan
from freshet.job.embed import folder
from freshet.job.machine.processes import die_with_parent
from tests.support.graphs.models import conv, make_model
from tests.support.graphs.random_graphs import weighted
from tests.support.runs.embeds import start_embed
from tests.support.runs.jobs import DEADLINE_S, FRESHET, Input, Job
from tests.support.stages.embedded import file_bytes, read_rows, write_graph

pytestmark = pytest.mark.slow
WIDTH, VERTICES, EDGES = 64, 50_000, 400_000
PAUSE_S = 0.5  # after each pass of what is killed
LAYERS = [conv("gcn_conv", WIDTH, 64), {"type": "relu"}, conv("sage_conv", 64, 16)]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """A model of two layers, and a graph whose features are several times the budget of these tests."""
    base = tmp_path_factory.mktemp("input")
    rng = np.random.default_rng(3)
    pairs = np.unique(rng.integers(0, VERTICES, EDGES) * VERTICES + (VERTICES * rng.power(0.4, EDGES)).astype(np.int64))
    x = rng.standard_normal((VERTICES, WIDTH), np.float32)
    weight = rng.uniform(0.5, 2, len(pairs)).astype(np.float32)
    write_graph(base / "S", weighted(x, pairs // VERTICES, pairs % VERTICES, weight))
    save_model(make_model(3, LAYERS), base / "M")
    save_model(make_model(4, LAYERS), base / "other")
    return Input(base / "M", base / "none", 0, base / "S")


def start(given: Input, out: Path, *options: str, **popen: Any) -> subprocess.Popen[str]:
    command = [FRESHET, "embed", "--model", given.model, "--snapshot", given.snapshot, "--out", out]
    command += ["--for", "serving", *options]
    popen = {"preexec_fn": die_with_parent} | popen
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """How it ended: code, its JSON line, its stderr."""
    try:
        answer, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    return process.returncode, json.loads(answer) if answer else {}, errors


@pytest.fixture(scope="module")
def whole(given: Input, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedding that nothing interrupted, with room for all."""
    out = tmp_path_factory.mktemp("whole") / "S2"
    code, line, errors = end(start(given, out, "--memory", "256MiB"))
    assert code == 0, errors
    assert line["vertices"] == VERTICES
    assert line["graduated"] == 2 * VERTICES
    assert line["passes"] == [1, 1]
    assert "hot store 50,000 of 50,000" in errors
    assert "a later `freshet run`" in errors
    assert not (out / folder.WORK).exists()
    return out


def limited(kind: int, size: int) -> Callable[[], None]:
    def set_limit() -> None:
        die_with_parent()
        resource.setrlimit(kind, (size, size))

    return set_limit


def test_a_job_starts_from_what_it_wrote_and_has_the_same_embeddings(given: Input, whole: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_bytes(b'{"op":"add_vertex","id":999999}\n')
    job = Job(Input(given.model, events, 1, whole), tmp_path / "out")
    try:
        job.done("--runtime", "local", "--parts", "1")
    finally:
        job.end()
    from tests.support.runs.jobs import read_log

    log = read_log(tmp_path / "out")
    first = log.epoch == 0
    rows = read_rows(whole)
    assert log.id[first].tolist() == sorted(rows)
    ours = np.stack([rows[k] for k in sorted(rows)])
    assert np.abs(log.vector[first] - ours).max() <= 1e-5 * np.abs(ours).max()


def test_embeddings_of_another_model_are_refused_by_name(given: Input, whole: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_bytes(b'{"op":"add_vertex","id":1}\n')
    other = given.model.parent / "other"
    command = [FRESHET, "run", "--model", other, "--snapshot", whole, "--events", events, "--out", tmp_path / "out"]
    done = subprocess.run(
        [*map(str, command), "--runtime", "local"], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 2
    assert "has the embeddings of another model" in done.stderr
    from freshet.gnn.model import load_model

    assert compile_plan(load_model(given.model)).sha256[:12] in done.stderr


@pytest.mark.long
def test_kills_cost_a_pass_and_not_a_bit(given: Input, whole: Path, tmp_path: Path) -> None:
    before = {name: (given.snapshot / name).read_bytes() for name in ("vertices.parquet", "edges.parquet")}  # type: ignore[operator]
    out = tmp_path / "S2"
    options = ("--memory", "8MiB", "--passes", "16")
    journal = out / folder.WORK / "journal.json"

    def finished() -> int:
        """Steps that are in the journal."""
        steps = json.loads(journal.read_bytes()) if journal.exists() else {}
        return sum(name == "prepared" or "-" in name for name in steps)

    reached = []
    for wanted in (0, 1, 5, 18):  # after which there are passes, and so seconds, to come
        process = start_embed(given, out, "--for", "serving", *options, faults={"pass": 1e3 * PAUSE_S})
        until = time.monotonic() + DEADLINE_S
        while not ((out / folder.WORK / folder.TOLD).exists() and finished() >= wanted):
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(0.02 + PAUSE_S * (wanted > 1))  # within the next pass, if the machine is quick
        os.kill(process.pid, signal.SIGKILL)
        end(process)
        assert process.returncode == -signal.SIGKILL
        assert not (out / "snapshot.json").exists()
        assert not (out / "embeddings").exists()
        reached.append(finished())
    assert reached[1] >= 1 and reached[2] >= 5 and reached[3] >= 18
    code, line, errors = end(start(given, out, *options))
    assert code == 0, errors
    assert line["resumed"]
    assert line["passes"] == [16, 16]
    assert line["graduated"] == 2 * VERTICES
    assert "going on where an earlier attempt ended" in errors
    assert file_bytes(out) == file_bytes(whole)
    assert before == {name: (given.snapshot / name).read_bytes() for name in before}  # type: ignore[operator]
    code, _, errors = end(start(given, out, *options))
    assert code == 2
    assert "already holds a finished embedding" in errors


def test_a_second_embed_into_a_folder_and_other_options_are_refused(given: Input, tmp_path: Path) -> None:
    out = tmp_path / "S2"
    with folder.taken(out) as work:
        code, _, errors = end(start(given, out, "--memory", "64MiB"))
        assert code == 2
        assert f"process {os.getpid()} on " in errors and "(freshet embed, since" in errors
        folder.keep_told(work, {"model": "0123", "--memory": 1 << 26})
    code, _, errors = end(start(given, out, "--memory", "64MiB"))
    assert code == 2
    assert "an embedding is under way there with model '0123'" in errors


def test_a_budget_that_is_too_small_is_refused_with_one_that_would_do(given: Input, tmp_path: Path) -> None:
    code, _, errors = end(start(given, tmp_path / "S2", "--memory", "1MiB"))
    assert code == 2
    assert "--memory 1MiB: too little for 50,000 vertices" in errors
    enough = errors.rsplit("give ", 1)[1].split(" or more")[0]
    code, _, errors = end(start(given, tmp_path / "S3", "--memory", enough))
    assert code == 0, errors


def test_a_full_disk_and_a_file_that_was_cut_off_end_it_with_3(given: Input, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "S2"
    options = ("--memory", "8MiB", "--passes", "1")
    # files may not grow beyond 6 MB: the cold store's room can't be had
    process = start(given, out, *options, preexec_fn=limited(resource.RLIMIT_FSIZE, 6 << 20))
    code, _, errors = end(process)
    assert code == 3
    assert "no room left on the disk" in errors.strip().splitlines()[-1]
    assert not (out / "snapshot.json").exists()
    assert not (out / "embeddings").exists()
    process = start_embed(given, out, "--for", "serving", *options, faults={"pass": 30_000})
    work, until = out / folder.WORK, time.monotonic() + DEADLINE_S
    while not (work / "layer1.rows").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)
    process.kill()
    end(process)
    size = (work / "dst").stat().st_size
    os.truncate(work / "dst", size // 2)
    code, _, errors = end(start(given, out, *options))
    assert code == 3
    assert "dst: does not match its checksum" in errors.strip().splitlines()[-1]
    assert not (out / "snapshot.json").exists()
    assert not (out / "embeddings").exists()


@pytest.mark.parametrize(("memory", "passes"), [("8MiB", "4"), ("64MiB", "4")])
def test_neither_budget_nor_passes_change_a_bit(
    given: Input, whole: Path, tmp_path: Path, memory: str, passes: str
) -> None:
    options = "--memory", memory, "--passes", passes, "--parts", "3"
    code, line, errors = end(start(given, tmp_path / "S2", *options))
    assert code == 0, errors
    assert line["passes"][0] == int(passes) and "--parts and placement are not used" in errors
    assert (line["evicted"] > 0) == (memory == "8MiB"), "slots for all of a pass's destinations, or not"
    assert file_bytes(tmp_path / "S2") == file_bytes(whole)


def test_it_keeps_to_a_hard_limit(given: Input, whole: Path, tmp_path: Path) -> None:
    """Features of 13 MB and slots of 26 MB for all destinations, 8 MiB of budget, and a limit of private memory."""
    limit = limited(resource.RLIMIT_DATA, (8 << 20) + (256 << 20))
    code, line, errors = end(start(given, tmp_path / "S2", "--memory", "8MiB", "--passes", "1", preexec_fn=limit))
    assert code == 0, errors
    assert line["evicted"] > 0
    assert file_bytes(tmp_path / "S2") == file_bytes(whole)


@pytest.mark.parametrize(("placement", "memory_mb"), [("stream", 64), ("whole", 128)])
def test_the_state_of_a_stream_keeps_to_a_hard_limit(
    given: Input, tmp_path: Path, placement: str, memory_mb: int
) -> None:
    """Also while the graph is placed, which reserves no more than it may need."""
    options = "--for", "streaming", "--parts", "2", "--memory", f"{memory_mb}MiB", "--snapshot-placement", placement
    code, line, errors = end(start(given, tmp_path / "free", *options))  # compiles what the limit has no room for
    assert code == 0, errors
    # 220 MiB beside the budget were enough on a quiet machine; the stacks of more threads count, too
    limit = limited(resource.RLIMIT_DATA, (memory_mb << 20) + (288 << 20))
    code, line, errors = end(start(given, tmp_path / "S2", *options, preexec_fn=limit))
    assert code == 0, errors
    assert line["vertices"] == VERTICES
