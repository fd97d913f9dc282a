"""An embedding is gone on with only where the snapshot is the one that it began with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from freshet.gnn.model import save_model
from freshet.job.embed import folder as embed_folder
from freshet.job.embed import runner
from freshet.job.embed.runner import STREAMING, EmbedOptions, embed
from freshet.job.errors import UsageError
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.stages.embedded import read_rows, write_graph

VERTICES = 80


class Killed(BaseException):
    """The end of the first attempt."""


def snapshot(folder: Path, seed: int) -> Path:
    return write_graph(folder, random_graph(seed, vertices=VERTICES, edges=300))


@pytest.fixture
def options(tmp_path: Path) -> EmbedOptions:
    save_model(make_model(1, [conv("sage_conv", IN_WIDTH, 4)]), tmp_path / "model")
    snapshot(tmp_path / "S", 1)
    return EmbedOptions(tmp_path / "model", tmp_path / "S", tmp_path / "O", memory=1 << 28)


def begin(options: EmbedOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that is killed when its rows are made and not yet in their place."""

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_finish", kill)
        with pytest.raises(Killed):
            embed(options)
    assert (options.out / ".embed" / "told.json").exists()


@pytest.mark.parametrize("streams", [False, True])
def test_another_snapshot_of_the_same_name_and_size_is_refused(
    options: EmbedOptions, streams: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else rows of the former graph would be served with the new one's vertices."""
    if streams:
        options = EmbedOptions(**{**vars(options), "made_for": STREAMING})
    begin(options, monkeypatch)
    files = [options.snapshot / name for name in ("vertices.parquet", "edges.parquet")]
    before = [(path.stat().st_atime_ns, path.stat().st_mtime_ns) for path in files]
    content = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    snapshot(options.snapshot, 2)
    with pytest.raises(UsageError, match="an embedding is under way there with snapshot files"):
        embed(options)
    for path, old, times in zip(files, content, before, strict=True):
        path.write_bytes(old)
        os.utime(path, ns=times)
    capsys.readouterr()
    embed(options)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(read_rows(options.out)) == VERTICES


@pytest.mark.parametrize("name", ["vertices.parquet", "edges.parquet"])
def test_each_file_of_the_snapshot_counts(options: EmbedOptions, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written again, and is as long as before."""
    begin(options, monkeypatch)
    path = options.snapshot / name
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(UsageError, match=f"snapshot files .*{name}.*{stat.st_mtime_ns + 1}"):
        embed(options)


def test_an_option_that_was_a_flag_when_it_began_is_the_same_option(tmp_path: Path) -> None:
    assert not embed_folder.keep_told(tmp_path, {"--hybrid-threshold": 1000})
    assert embed_folder.keep_told(tmp_path, {"hybrid-threshold": 1000})
    with pytest.raises(UsageError, match="with hybrid-threshold 1000, this one has 5;"):
        embed_folder.keep_told(tmp_path, {"hybrid-threshold": 5})
