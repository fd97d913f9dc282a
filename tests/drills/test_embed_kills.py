"""The drill of kills, in short; and that it notices what it looks for."""

from pathlib import Path
from random import Random

import pytest

from tests.drills.embed_kills import KilledEmbed, KillsError, digests
from tests.support.runs.jobs import Input, make_input

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 10, snapshot=True)


@pytest.mark.parametrize("options", [("--parts", "2", "--memory", "64MiB"), ("--for", "serving", "--memory", "8MiB")])
def test_kills_leave_the_same_files(given: Input, options: tuple[str, ...], tmp_path: Path) -> None:
    assert given.snapshot is not None
    found = KilledEmbed(given.model, given.snapshot, tmp_path, *options).run(3, Random(5))
    assert found.kills == len(found.at_s) == 3
    assert found.finished
    assert digests(tmp_path / "whole").keys() >= {"snapshot.json", "vertices.parquet"}


def test_a_file_that_differs_is_noticed(given: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert given.snapshot is not None
    drill = KilledEmbed(given.model, given.snapshot, tmp_path, "--memory", "64MiB")
    wanted = drill._undisturbed

    def another(told: bytes) -> dict[str, str]:
        return wanted(told) | {"base/sink-0/scalars.bin": "0"}

    monkeypatch.setattr(drill, "_undisturbed", another)
    with pytest.raises(KillsError, match=r"these files differ: base/sink-0/scalars.bin"):
        drill.run(1, Random(5))
