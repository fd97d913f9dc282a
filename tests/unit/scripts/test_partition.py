"""scripts/tools/partition.py, from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.job.dev.script import run_script
from freshet.job.options.config_file import load_partitioning
from freshet.job.options.run_config import RunConfig
from freshet.operators.snapshot.writer import write_snapshot
from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features
from scripts.tools.partition import app
from scripts.tools.partition_trials import Graph, Trial
from tests.support.graphs.models import conv, make_model


class Ended:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.err = code, err
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def freshet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["partition.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            run_script(app, "partition.py")
        captured = capsys.readouterr()
        return Ended(int(end.value.code or 0), captured.out, captured.err)

    return call


def graph(vertices: int = 300, edges: int = 2_500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    dst = np.minimum(rng.integers(0, vertices, edges), rng.integers(0, vertices, edges))
    return rng.integers(0, vertices, edges), dst


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    src, dst = graph()
    write_snapshot(tmp_path / "S", np.arange(300), np.ones((300, 5), np.float32), src, dst)
    return tmp_path / "S"


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Edges of the same graph as events, with other ops, features of width 3 and two bad records among them."""
    src, dst = graph()
    lines = [
        json.dumps({"op": "add_edge", "src": s, "dst": d}) for s, d in zip(src.tolist(), dst.tolist(), strict=True)
    ]
    lines[1200:1200] = ['{"op": "set_features", "id": 3, "x": [1, 2, 3]}', "nonsense", '{"op": "add_vertex", "id": 3}']
    lines += ['{"op": "del_edge", "src": 999, "dst": 3}', '{"op": "add_vertex", "id": 4, "x": [1, 2]}']
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    return tmp_path / "e.jsonl"


def test_one_line_per_partitioner_and_a_table(freshet: Any, snapshot: Path) -> None:
    ended = freshet("--snapshot", snapshot, "--parts", 4)
    assert ended.code == 0, ended.err
    assert [line["partitioner"] for line in ended.lines] == list(STRATEGIES)
    edges = len(set(zip(*map(np.ndarray.tolist, graph()), strict=True)))
    for line in ended.lines:
        assert (line["parts"], line["vertices"], line["edges"]) == (4, 300, edges)
        assert 1.0 <= line["replication_factor"] <= 4.0
        assert 0.0 < line["cut_share"] < 1.0
        assert line["vertex_balance"] >= 1.0 and line["edge_balance"] >= 1.0
        assert line["edges_per_s"] > 0
        assert (line["events"], line["rejected"]) == (2_800, 0)
        assert f"{line['replication_factor']:.2f}" in ended.err
    assert "300 vertices" in ended.err
    assert max(map(len, ended.err.splitlines())) <= 80


def test_it_says_what_the_partitioner_of_a_run_would_do(freshet: Any, snapshot: Path) -> None:
    (line,) = freshet("--snapshot", snapshot, "--parts", 3, "--partitioner", "hdrf").lines
    src, dst = graph()
    core = Partitioner(3, Features(1), PartitionerConfig(strategy="hdrf"))
    vertices = [("add_vertex", k) for k in range(300)]
    core.partition(
        events_of([*vertices, *(("add_edge", s, d) for s, d in zip(src.tolist(), dst.tolist(), strict=True))])
    )
    stats = core.stats()
    assert line["replication_factor"] == round(stats.replication_factor, 4)
    assert line["cut_share"] == round(stats.cut_share, 4)
    assert line["split_share"] == round(stats.split_share, 4) > 0


def test_events_in_epochs_with_features_and_bad_records(freshet: Any, stream: Path) -> None:
    (line,) = freshet("--events", stream, "--parts", 2, "--partitioner", "hybrid").lines
    assert line["rejected"] == 2, "no JSON, and features of another width than the first"
    assert line["events"] == 2_503
    assert line["vertices"] == len(set(np.concatenate(graph()).tolist()) | {3})


def test_a_snapshot_and_then_events(freshet: Any, snapshot: Path, stream: Path) -> None:
    (line,) = freshet("--snapshot", snapshot, "--events", stream, "--parts", 2, "--partitioner", "hash").lines
    alone = freshet("--snapshot", snapshot, "--parts", 2, "--partitioner", "hash").lines[0]
    assert (line["vertices"], line["edges"]) == (alone["vertices"], alone["edges"]), "the same edges once more"
    assert line["events"] == alone["events"] + 2_503


def test_undirected_edges_are_mirrored(freshet: Any, tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"op": "add_edge", "src": "a", "dst": "b"}\n{"op": "add_edge", "src": "c", "dst": "c"}\n')
    (line,) = freshet("--events", path, "--parts", 2, "--partitioner", "hash", "--undirected").lines
    assert (line["vertices"], line["edges"]) == (3, 3)


def test_tables_of_events(freshet: Any, tmp_path: Path) -> None:
    src, dst = graph()
    x = [[1.0] * 7 if k == 50 else None for k in range(len(src))]
    ops = ["set_features" if row else "add_edge" for row in x]
    columns = {"op": ops, "id": pa.array([1 if row else None for row in x], pa.int64()), "src": src, "dst": dst, "x": x}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    (line,) = freshet("--events", tmp_path / "e.parquet", "--parts", 2, "--partitioner", "locality").lines
    assert (line["events"], line["rejected"]) == (len(src), 0)


@pytest.mark.parametrize("content", ["", "nonsense\n"])
def test_nothing_to_partition(freshet: Any, tmp_path: Path, content: str) -> None:
    (tmp_path / "e.jsonl").write_text(content)
    ended = freshet("--events", tmp_path / "e.jsonl", "--parts", 2)
    assert ended.code == 2
    assert "holds no event" in ended.err


def test_a_snapshot_that_is_none_is_wrong_use(freshet: Any, tmp_path: Path) -> None:
    folder = tmp_path / "S"
    folder.mkdir()
    for name in ("vertices", "edges"):
        (folder / f"{name}.parquet").write_bytes(b"PAR1")
    ended = freshet("--snapshot", folder, "--parts", 2)
    assert ended.code == 2
    assert "vertices.parquet" in ended.err


def test_too_many_parts(freshet: Any, snapshot: Path) -> None:
    ended = freshet("--snapshot", snapshot, "--parts", 40_000)
    assert ended.code == 2
    assert "--parts: got 40000, expected less than or equal to 1024" in ended.err


def test_it_shows_what_a_run_does() -> None:
    """Without options of its own, each partitioner has those that a run gives it."""
    trial = Trial(load_partitioning({"parts": 2}), Graph(), "int").core.config
    for name in ("strategy", "hybrid_threshold", "snapshot_placement", "hdrf_lambda", "hdrf_epsilon"):
        assert getattr(trial, name) == RunConfig.model_fields[name].default, name
    assert trial.hybrid_threshold == 1000


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(make_model(0, [conv("graph_conv", 3, 8), {"type": "relu"}, conv("graph_conv", 8, 2)]), tmp_path / "M")
    return tmp_path / "M"


def test_what_leaves_a_part_is_counted_with_a_model(freshet: Any, stream: Path, model: Path) -> None:
    ended = freshet("--events", stream, "--parts", 4, "--model", model)
    sent = {line["partitioner"]: line["bytes_per_event"] for line in ended.lines}
    assert sent["hdrf"] > sent["hybrid"] > 0, "partials travel, too"
    assert f"{sent['hdrf']:,}" in ended.err
    assert max(map(len, ended.err.splitlines())) <= 80
    alone = freshet("--events", stream, "--parts", 1, "--model", model, "--partitioner", "hash").lines[0]
    assert 0 < alone["bytes_per_event"] < sent["hybrid"], "of one part, what the Partitioner sends"


def test_what_a_snapshot_sends_does_not_count(freshet: Any, tmp_path: Path, stream: Path, model: Path) -> None:
    src, dst = graph()
    write_snapshot(tmp_path / "S3", np.arange(300), np.ones((300, 3), np.float32), src, dst)
    asked = ["--snapshot", tmp_path / "S3", "--parts", 4, "--partitioner", "hash", "--model", model]
    assert freshet(*asked).lines[0]["bytes_per_event"] is None
    (tmp_path / "few.jsonl").write_text('{"op": "add_vertex", "id": 7}\n')
    few = freshet(*asked, "--events", tmp_path / "few.jsonl").lines[0]["bytes_per_event"]
    many = freshet(*asked, "--events", stream).lines[0]["bytes_per_event"]
    assert many < few < 10_000, "blocks without a row are 24 bytes and the control values"


def test_features_must_have_the_models_width(freshet: Any, snapshot: Path, model: Path) -> None:
    ended = freshet("--snapshot", snapshot, "--parts", 4, "--model", model)
    assert ended.code == 2
    assert "3" in ended.err and "5" in ended.err


def test_a_snapshot_may_be_placed_edge_by_edge(freshet: Any, snapshot: Path) -> None:
    asked = ["--snapshot", snapshot, "--parts", 4, "--partitioner", "locality"]
    whole, stream = freshet(*asked).lines[0], freshet(*asked, "--snapshot-placement", "stream").lines[0]
    assert whole["cut_share"] < stream["cut_share"]
    assert freshet(*asked, "--snapshot-placement", "x").code == 2


def test_all_partitioners_are_tried_unless_some_are_named(freshet: Any, snapshot: Path) -> None:
    assert len(freshet("--snapshot", snapshot, "--parts", 2).lines) == len(STRATEGIES)
    asked = ["--snapshot", snapshot, "--parts", 2, "--partitioner", "hash"]
    assert [line["partitioner"] for line in freshet(*asked).lines] == ["hash"]
    ended = freshet(*asked, "--partitioner", "metis")
    assert (ended.code, "--partitioner: got 'metis'" in ended.err) == (2, True)
    ended = freshet("--parts", 4)
    assert (ended.code, "nothing to partition" in ended.err) == (2, True)
