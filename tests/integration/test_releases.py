"""Jobs that earlier releases stopped are resumed; scripts/tools/make_release_fixture.py makes the fixture of each."""

import tarfile
from pathlib import Path

import pytest

from freshet.job.folder import run_file
from tests.integration.test_job import Make
from tests.support.runs.jobs import ROOT, Input, Job

RELEASES = sorted((ROOT / "tests" / "data" / "releases").glob("*.tar.xz"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def kept(request: pytest.FixtureRequest, job: Make, tmp_path: Path) -> Job:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return job(Input(tmp_path / "model", tmp_path / "events", 1500))


def test_the_state_of_a_release_is_resumed(kept: Job) -> None:
    before = run_file.read_run(kept.out)["epoch"]
    assert 0 < before < 75, "it was stopped in mid-stream"
    result = kept.done("--runtime", "local", "--resume", "latest")
    assert (result["events"], result["epochs"]) == (1500, 75)
    assert kept.check()["epoch"] == 75


def test_fixtures_are_small() -> None:
    assert RELEASES
    assert all(path.stat().st_size < 200_000 for path in RELEASES)
