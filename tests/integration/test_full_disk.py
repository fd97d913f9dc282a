"""Serving on disks that are full: the job goes on, the server says what is wrong, and goes on when there is space."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.place import read_server
from tests.support.runs.jobs import ROOT
from tests.support.serving.hand_job import HandJob
from tests.support.serving.server import START_S

pytestmark = pytest.mark.slow
MANY = 60_000


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """A folder that is still there where /dev/shm is another disk."""
    return disk_path


def run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


@contextmanager
def disk(path: Path, size: str) -> Iterator[Path]:
    """A small disk of its own."""
    path.mkdir(parents=True, exist_ok=True)
    try:
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("mounting a small disk takes root")
    try:
        yield path
    finally:
        run("umount", "-l", path)


def fill(path: Path) -> None:
    """Leave no byte."""
    with (path / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@contextmanager
def server_without_shared_memory(hand: HandJob, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A real `freshet serve` for which /dev/shm is too small, so that its table lies beside the tails."""
    log = hand.out.parent / "serve.log"
    serve = [sys.executable, "-m", "freshet.job.cli", "serve", "--tables", str(hand.out / "tables"), "--port", "0"]
    small = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", small, "sh", *serve, "--http-port", "0", *options]
    with log.open("ab") as told:
        process = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=told, start_new_session=True)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def rows_of(first: int, value: float) -> dict[int, float]:
    return dict.fromkeys(range(first, first + MANY), value)


def is_behind(health: dict[str, Any]) -> bool:
    """Whether the server says that it lacks rows: it hears of it at its next heartbeats."""
    return not health["ready"] and health["tail_failures"] == 1 and health["behind_s"] > 1


def test_tail_and_table_on_a_full_disk(tmp_path: Path) -> None:
    """Two epochs that the tail has no space for, the second too large for the table: both come when there is space."""
    with ExitStack() as stack:
        tables = stack.enter_context(disk(tmp_path / "O" / "tables", "6m"))
        hand = HandJob(tmp_path / "O")
        hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
        process, log = stack.enter_context(server_without_shared_memory(hand, "--stale-after", "1s"))
        until(lambda: read_server(tables).get("pid") == process.pid, process, log)
        client = stack.enter_context(EmbeddingClient(read_server(tables)["flight"], timeout=100))
        assert client.rows([2], min_epoch=1)[1].tolist() == [1]
        until(lambda: client.health()["ready"], process, log)  # a busy machine may leave a second without a heartbeat
        fill(tables)
        hand.apply(2, (rows_of(1000, 2.0), [3]), ({}, []), marker=1)
        assert hand.sinks[0].status(0.0)["tail_failures"] == 1, "the job goes on, and counts it"
        hand.settle()
        until(lambda: "no space" in str(client.health()["reason"]), process, log)
        until(lambda: is_behind(client.health()), process, log)
        assert client.health()["epoch"] == 1
        assert client.rows([2, 3])[1].tolist() == [1, 1], "what is there is answered still"
        run("mount", "-o", "remount,size=128m", tables)
        (tables / "filler").unlink()
        found = client.rows([2, 3, 1000, 1000 + MANY - 1], min_epoch=2, timeout=100)
        assert (found.epoch, found[0].tolist(), found[1].tolist()) == (2, [2, 1000, 1000 + MANY - 1], [1, 2, 2])
        hand.apply(3, ({2: 3.0}, []))  # by the tail again
        assert client.rows([2], min_epoch=3, timeout=100)[1].tolist() == [3]
        until(lambda: client.health()["ready"] and client.health()["reason"] is None, process, log)
        told = log.read_text()
        assert told.count("no space for the table") == 1
        assert "the table goes on, at epoch 2" in told
        hand.close()


def test_a_server_that_starts_on_a_full_disk(tmp_path: Path) -> None:
    """It has nowhere to put a table, nor where it is; its HTTP port says so, and then it serves."""
    with ExitStack() as stack:
        tables = stack.enter_context(disk(tmp_path / "O" / "tables", "8m"))
        hand = HandJob(tmp_path / "O")
        hand.apply(1, ({2: 1.0}, []), marker=1)
        hand.settle()
        fill(tables)
        process, log = stack.enter_context(server_without_shared_memory(hand))
        until(lambda: "no space for the table" in log.read_text(), process, log)
        assert read_server(tables) == {}
        (tables / "filler").unlink()
        until(lambda: read_server(tables).get("pid") == process.pid, process, log)
        with EmbeddingClient(tables, timeout=100) as client:
            assert client.rows([2])[1].tolist() == [1]
        hand.close()


def test_a_base_on_a_full_disk_is_none_and_what_was_there_stays(tmp_path: Path) -> None:
    with disk(tmp_path / "O" / "embeddings", "6m") as embeddings:
        hand = HandJob(tmp_path / "O", parts=1)
        noise = np.random.default_rng(1).random(MANY)
        hand.apply(1, (dict(zip(range(MANY), noise.tolist(), strict=True)), []), marker=1)
        hand.settle()
        first = compact_log(hand.out)
        hand.apply(2, ({1: 2.0}, []), marker=2)
        hand.settle()
        fill(embeddings)
        before = names(embeddings)
        with pytest.raises(OSError, match="No space left"):
            compact_log(hand.out, keep_s=0.0, now_s=2e12)
        assert names(embeddings) == before, "neither a torn base, nor a piece that takes what space is left"
        assert pq.read_metadata(embeddings / f"base-{first.epoch:012d}.parquet").num_rows == MANY
        (embeddings / "filler").unlink()
        second = compact_log(hand.out)
        assert (second.epoch, second.rows) == (2, MANY)
        hand.close()


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_torn_base_is_named_and_a_server_goes_on_when_it_is_whole(tmp_path: Path) -> None:
    hand = HandJob(tmp_path / "O", parts=1)
    hand.apply(1, ({2: 1.0}, []), marker=1)
    hand.settle()
    compact_log(hand.out)
    [base] = (hand.out / "embeddings").glob("base-*.parquet")
    whole = base.read_bytes()
    base.write_bytes(whole[: len(whole) // 2])
    done = subprocess.run(
        [sys.executable, "-m", "freshet.job.cli", "compact", str(hand.out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 2, done.stderr
    assert base.name in done.stderr
    assert "put it back from a copy" in done.stderr
    assert base.exists()
    log = tmp_path / "serve.log"
    command = [sys.executable, "-m", "freshet.job.cli", "serve", "--tables", str(hand.out / "tables")]
    with log.open("wb") as told:
        process = subprocess.Popen([*command, "--port", "0", "--http-port", "0"], cwd=ROOT, stdout=told, stderr=told)
    try:
        until(lambda: "is damaged" in log.read_text(), process, log)
        base.write_bytes(whole)
        with EmbeddingClient(hand.out / "tables", timeout=100) as client:
            assert client.rows([2])[1].tolist() == [1]
        process.terminate()
        assert process.wait(300) == 0
    finally:
        process.kill()
        process.wait()
    hand.close()
