"""The options of `freshet embed` that a later job has too: by flag, or from that job's --config file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.job import cli
from freshet.job.embed import runner
from freshet.job.embed.runner import EmbedOptions
from freshet.job.options.config_file import load_partitioning


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Calls the command with a stand-in for its work; returns what that was given."""
    for name in ("M/model.json", "M/model.safetensors", "S/vertices.parquet", "S/edges.parquet"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()

    def call(*more: object) -> EmbedOptions:
        given: list[EmbedOptions] = []
        monkeypatch.setattr(runner, "embed", lambda options: given.append(options) or 0)
        arguments = ["--model", tmp_path / "M", "--snapshot", tmp_path / "S", "--out", tmp_path / "O", *more]
        with pytest.raises(SystemExit) as end:
            cli.main(["embed", *map(str, arguments)])
        assert end.value.code == 0
        return given[0]

    return call


def test_the_file_of_the_job_says_how_its_graph_is_divided(called: Any, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text("parts: 4\npartitioner: hdrf\nhdrf-lambda: 1.5\nundirected: true\nrestarts: 3\n")
    options = called("--config", config, "--partitioner", "hybrid")
    assert options.placement == load_partitioning({"parts": 4, "partitioner": "hybrid", "hdrf_lambda": 1.5})
    assert options.undirected is True
    assert called("--config", config, "--directed").undirected is False


def test_without_it_they_are_those_of_a_run(called: Any) -> None:
    options = called()
    assert options.placement == load_partitioning({})
    assert options.undirected is None
    assert called("--for", "serving").placement == options.placement, "for models that are embedded by parts"


def test_a_device_and_its_memory(called: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = called("--for", "serving", "--device", "auto", "--device-memory", "64MiB")
    assert (options.device, options.device_memory) == ("auto", 64 << 20)
    assert (called().device, called().device_memory) == ("cpu", None)
    for given, words in (
        (("--device", "gpu"), "--device: got 'gpu', expected cpu, cuda, auto"),
        (("--device-memory", "9"), "--device-memory: got '9', expected"),
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(
                ["embed", *map(str, ("--model", tmp_path, "--snapshot", tmp_path, "--out", tmp_path / "O", *given))]
            )
        assert end.value.code == 2 and words in capsys.readouterr().err
