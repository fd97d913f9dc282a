"""Whatever Freshet writes is of its owner alone, whatever the umask: nobody else reads seed, graph or embeddings."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder import run_file
from freshet.job.folder.run_file import read_run
from freshet.job.serving.place import SHM, mark_of
from tests.support.runs.embeds import start_embed
from tests.support.runs.jobs import DEADLINE_S, Input, Job, make_input
from tests.support.serving.hand_job import HandJob
from tests.support.serving.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Make = Callable[[Input], Job]


@pytest.fixture(autouse=True)
def no_mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 600, snapshot=True)


def open_to_others(folder: Path) -> list[str]:
    """What others may do anything with, the folder first; there must be something in it."""
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 5
    return [f"{path} {stat.S_IMODE(path.lstat().st_mode):o}" for path in paths if is_open(path)]


def is_open(path: Path) -> bool:
    return not path.is_symlink() and bool(path.lstat().st_mode & 0o077)


def test_a_job_that_is_stopped_and_goes_on(given: Input, job: Make) -> None:
    one = job(given)
    one.out.mkdir(0o777)
    options = "--parallelism", 2, "--parts", 3, "--stay", "--checkpoint-interval", "500ms"
    for resume in ((), ("--resume", "latest")):
        one.start(*options, *resume)
        one.until(lambda: read_run(one.out).get("state") == run_file.RUNNING)
        one.until_epoch(1)
        assert one.stop().code == 0
        one.wait()
        assert not open_to_others(one.out)
    assert (one.out / "job" / "job.json").is_file()
    assert list(one.out.rglob("_metadata")), "a savepoint is among them"


def test_a_job_without_flink(given: Input, job: Make) -> None:
    one = job(given)
    one.done("--runtime", "local")
    assert not open_to_others(one.out)


def test_a_job_on_a_cluster_that_somebody_else_started(given: Input, job: Make, tmp_path: Path) -> None:
    one = job(given)
    with LocalCluster(tmp_path / "cluster", 2) as cluster:  # with our umask: none
        one.done("--cluster", cluster.rest, "--parallelism", 2)
    found = open_to_others(one.out)
    # The JobManager is theirs: what it writes has its mode, in folders that nobody else can open.
    assert not [line for line in found if "/checkpoints/" not in line]
    assert not is_open(one.out / "checkpoints")


def test_embed_and_export(given: Input, job: Make, tmp_path: Path) -> None:
    process = start_embed(given, tmp_path / "embedded", "--parts", "2")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert not [line for line in open_to_others(tmp_path / "embedded") if is_ours(line, given)]


def is_ours(line: str, given: Input) -> bool:
    """Whether it is no link to a file of the user's."""
    assert given.snapshot is not None
    inodes = {path.stat().st_ino for path in given.snapshot.iterdir()}
    return Path(line.rpartition(" ")[0]).stat().st_ino not in inodes


def test_a_server_and_its_tables(tmp_path: Path) -> None:
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    one, fed = Server(tmp_path / "O"), Server(tmp_path / "copy")
    try:
        told = one.start("--workers", "2")
        fed.start("--from", told["flight"])
        shared = [path for server in (one, fed) for path in SHM.glob(f"freshet-*-{mark_of(server.tables)}-*")]
        assert len(shared) == 2
        assert not [path for path in shared if is_open(path)]
        assert not open_to_others(one.tables)
        assert not is_open(fed.tables)
        assert not [path for path in fed.tables.rglob("*") if is_open(path)]
    finally:
        fed.end()
        one.end()
        hand.close()


def test_a_second_user_reads_nothing(given: Input, job: Make, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    one = job(given)
    one.done("--runtime", "local")
    one.out.chmod(0o755)  # the files by themselves
    for path in (tmp_path, *tmp_path.parents):  # so that only Freshet's own modes keep the other out
        if path.stat().st_uid == 0 and path.is_relative_to(tmp_path.parents[1]):
            path.chmod(path.stat().st_mode | 0o055)
    look = "import os, sys; os.setgid(65534); os.setuid(65534)\nfor p in sys.argv[1:]:\n try: open(p, 'rb'); print(p)\n"
    look += " except PermissionError: pass"
    files = [path for path in one.out.rglob("*") if path.is_file()]
    assert len(files) > 5
    done = subprocess.run(
        [sys.executable, "-c", look, *map(str, files)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
