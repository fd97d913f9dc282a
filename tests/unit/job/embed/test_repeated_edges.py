"""Edges of a snapshot that repeat a (src, dst, type): the last one holds, and how many do is said and counted."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.job.embed.runner import EmbedOptions, embed
from freshet.job.options.config_file import load_run_config
from freshet.job.run import runner
from tests.support.graphs.models import IN_WIDTH, conv, make_model

# 1 -> 2 three times, 2 -> 1 once, a loop twice, 3 -> 1 once
SRC, DST = [1, 2, 1, 3, 5, 1, 5], [2, 1, 2, 1, 5, 2, 5]
REPEATS = {False: 3, True: 4}  # by whether it is undirected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    snapshot = tmp_path / "S"
    snapshot.mkdir()
    rows = pa.array([[0.5] * IN_WIDTH], pa.list_(pa.float32(), IN_WIDTH))
    pq.write_table(pa.table({"id": [1], "x": rows}), snapshot / "vertices.parquet")
    weights = pa.array([float(k) for k in range(len(SRC))], pa.float32())
    pq.write_table(pa.table({"src": SRC, "dst": DST, "weight": weights}), snapshot / "edges.parquet")
    (tmp_path / "events.jsonl").write_bytes(b'{"op":"add_edge","src":1,"dst":2,"weight":9}\n')
    return tmp_path


def said_of(repeats: int) -> str:
    return f"edges.parquet: {repeats} of 7 edges repeat a (src, dst, type); the last one of each holds"


def run_from(folder: Path, snapshot: str, *, undirected: bool) -> int:
    given = {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / f"out-{snapshot}"}
    return runner.run(
        load_run_config({**given, "runtime": "local", "snapshot": folder / snapshot, "undirected": undirected})
    )


@pytest.mark.parametrize("undirected", [False, True])
def test_a_run_says_it_before_its_start(folder: Path, undirected: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_from(folder, "S", undirected=undirected) == 0
    said = capsys.readouterr()
    assert said.err.index(said_of(REPEATS[undirected])) < said.err.index("prepared in")
    assert orjson.loads(said.out)["replaced"] == 1, "of the stream alone"


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("made_for", ["serving", "streaming"])
def test_an_embedding_counts_them(
    folder: Path, made_for: str, undirected: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = EmbedOptions(folder / "model", folder / "S", folder / "S2", undirected=undirected, made_for=made_for)
    assert embed(options) == 0
    said = capsys.readouterr()
    assert orjson.loads(said.out)["replaced"] == REPEATS[undirected]
    assert said_of(REPEATS[undirected]) in said.err
    if made_for == "streaming":
        assert run_from(folder, "S2", undirected=undirected) == 0
        assert said_of(REPEATS[undirected]) in capsys.readouterr().err
