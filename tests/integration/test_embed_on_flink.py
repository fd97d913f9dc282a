"""`freshet embed --runtime flink`: the same bits as without Flink, over the death of a step, and clear ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import load_model
from freshet.gnn.plan import compile_plan
from freshet.job.embed import folder, streaming
from freshet.job.embed.batch_job import Spread
from freshet.job.embed.streaming import partitioning_of
from freshet.job.folder import layout
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.operators.snapshot.reader import open_snapshot
from tests.support.runs.elsewhere import other_flink
from tests.support.runs.embeds import killing_steps, start_embed
from tests.support.runs.jobs import DEADLINE_S, Input, Job, make_input
from tests.support.runs.listening import is_shut, watched
from tests.support.runs.modes import no_umask, ours_open_to_others

pytestmark = pytest.mark.slow
PARTS = 3
MEMORY = 64 << 20


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 2000, snapshot=True)


def images(work: Path) -> dict[str, bytes]:
    """All that a job takes over, by file."""
    files = (path for name in (layout.IMAGE, layout.EMBEDDINGS, layout.EPOCHS) for path in (work / name).rglob("*"))
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in files if path.is_file()}


def made(given: Input, work: Path, spread: Spread | None) -> dict[str, bytes]:
    """Make the image of the snapshot, always with the same seed."""
    work.mkdir()
    plan = compile_plan(load_model(given.model))
    snapshot = open_snapshot(given.snapshot, plan.features)
    placed = PartitioningOptions(parts=PARTS, partitioner="hdrf")
    partitioning = partitioning_of(placed, plan, snapshot, 5, undirected=False)
    streaming.make_image(given.model, snapshot, work, MEMORY, PARTS, partitioning, lambda _: None, spread)
    return images(work)


@pytest.mark.long
def test_the_image_is_the_same_bit_by_bit_though_a_step_is_killed(given: Input, tmp_path: Path) -> None:
    expected = made(given, tmp_path / "local", None)
    with killing_steps() as killed:
        found = made(given, tmp_path / "flink", Spread(2))
    assert killed
    log = (tmp_path / "flink" / "flink" / "logs" / "flink.log").read_text()
    assert "killed by signal 9" in log
    assert found.keys() == expected.keys()
    assert len([name for name in found if name.startswith(f"{layout.IMAGE}/storage1-")]) > PARTS
    assert [name for name in found if found[name] != expected[name]] == []


def await_step(process: subprocess.Popen[str], out: Path, step: str) -> None:
    """Wait until a running command's journal has a step."""
    until, journal = time.monotonic() + DEADLINE_S, out / folder.WORK / "steps" / "journal.json"
    while not journal.exists() or step not in journal.read_text():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.long
def test_what_was_killed_leaves_nothing_running_and_is_gone_on_with(given: Input, tmp_path: Path) -> None:
    """First the command, at an early step, then Java, at a later one; all is of its owner alone."""
    assert given.snapshot is not None
    out, options = tmp_path / "S2", ("--parts", "2", "--memory", "64MiB", "--runtime", "flink", "--parallelism", "2")
    process = start_embed(given, out, *options, **other_flink(tmp_path / "other"))
    await_step(process, out, '"storage0-1"')
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=600)
    assert alive == []

    process = start_embed(given, out, *options)
    await_step(process, out, '"storage1-1"')
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.NoSuchProcess):  # another one that has just ended
            if child.name() == "java":
                child.kill()
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3, errors
    assert errors.splitlines()[-1].startswith("freshet: the Java process died (killed by SIGKILL)"), errors
    assert "going on where an earlier attempt ended" in errors

    with no_umask(), watched() as seen:
        process = start_embed(given, out, *options)
        said, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
    is_shut(seen, "java")
    assert not ours_open_to_others(out, given.snapshot)
    assert "going on where an earlier attempt ended" in errors
    line = orjson.loads(said.splitlines()[-1])
    assert (line["runtime"], line["parallelism"], line["resumed"]) == ("flink", 2, True)
    assert line["memory_peak"] > 100 << 20
    assert not (out / folder.WORK).exists()
    job = Job(Input(given.model, given.events, given.count, out), tmp_path / "O")
    try:
        job.done("--parts", "2", "--runtime", "local")
        assert "state taken over" in job.log()
        job.check()
    finally:
        job.end()


def test_a_signal_ends_the_command_and_all_that_it_has_started(given: Input, tmp_path: Path) -> None:
    process = start_embed(given, tmp_path / "S2", "--parts", "2", "--runtime", "flink", "--parallelism", "2")
    await_step(process, tmp_path / "S2", "")
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143, errors
    assert "Exception" not in errors and "Traceback" not in errors
    _, alive = psutil.wait_procs(family, timeout=600)
    assert alive == []


def test_a_cluster_that_is_not_there_is_named(given: Input, tmp_path: Path) -> None:
    process = start_embed(given, tmp_path / "S2", "--runtime", "flink", "--cluster", "localhost:1")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    assert "--cluster localhost:1: no Flink cluster answers there" in errors.splitlines()[-1]


def test_a_bad_row_ends_it_at_once_by_name(given: Input, tmp_path: Path) -> None:
    bad = tmp_path / "S"
    bad.mkdir()
    (bad / "edges.parquet").write_bytes((given.snapshot / "edges.parquet").read_bytes())
    vertices = pq.read_table(given.snapshot / "vertices.parquet")
    rows = vertices.column("x").to_pylist()
    rows[7] = [float("nan")] * len(rows[7])
    index = vertices.schema.get_field_index("x")
    pq.write_table(
        vertices.set_column(index, "x", pa.array(rows, vertices.schema.field("x").type)), bad / "vertices.parquet"
    )
    process = start_embed(Input(given.model, given.events, given.count, bad), tmp_path / "S2", "--runtime", "flink")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, errors
    assert "vertices.parquet" in errors.splitlines()[-1] and "row 7" in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--parallelism", "2", "--parts", "2"), "--runtime flink"),
        (("--runtime", "flink", "--parallelism", "3", "--parts", "2"), "--parts 2"),
        (("--runtime", "flink", "--for", "serving", "--parallelism", "3", "--passes", "2"), "--passes 2"),
        (("--runtime", "flink", "--cluster", "nonsense"), "HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    given: Input, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    process = start_embed(given, tmp_path / "S2", *options)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert named in errors
