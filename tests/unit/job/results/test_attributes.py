"""A job on edges with attributes, from events to `freshet check`: stopped, exported, gone on with, and embedded."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.job.embed.runner import STREAMING, EmbedOptions, embed
from freshet.job.errors import UsageError
from freshet.job.folder import run_file
from freshet.job.local.runtime import LocalRuntime
from freshet.job.options.config_file import load_run_config
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.results.check import check
from freshet.job.results.export import export
from freshet.job.run import runner
from freshet.job.run.new_job import prepare
from freshet.kinds import Kinds, Relation
from freshet.operators.live_attributes import AttributeKeeper, unkept_attributes
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.schema import Features
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records, with_attributes
from tests.support.stages.embedded import read_rows

BAD: list[Any] = [[1.0], [0.0] * 4, [[1.0], [2.0], [3.0]], ["1", "2", "3"], "1,2,3", [0.0, 1e39, 0.0], [None, 1, 2]]


@pytest.fixture(params=[{}, {"undirected": True}], ids=str)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    given: dict[str, Any] = request.param
    return given


def write(folder: Path) -> list[bytes]:
    """A model, and the lines of its events; every fiftieth has attributes that are none."""
    layers = [conv("gcn_conv", IN_WIDTH, 4), {"type": "relu"}, gine(4, 3)]
    save_model(make_model(3, layers), folder / "model")
    records = with_attributes(random_records(random.Random(2), 400, IN_WIDTH, vertices=30), EDGE_WIDTH)
    for k, attr in enumerate(BAD):
        records.insert(50 * (k + 1), {"op": "add_edge", "src": 2, "dst": 9, "attr": attr})
    lines = [orjson.dumps(record) for record in records]
    (folder / "events.jsonl").write_bytes(b"\n".join(lines))
    return lines


def run(folder: Path, name: str, stop_after: int | None = None, **options: Any) -> Path:
    """Run a job to its end, or stop it when about so many epochs have been committed."""
    out = folder / name
    given = {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": out, "runtime": "local"}
    config = load_run_config(given | {"epoch_ms": 0, "epoch_events": 20, **options})
    if stop_after is None:
        assert runner.run(config) == 0
        return out
    job, calls = prepare(config, out), [0]
    runtime = LocalRuntime(job.settings, len(job.sources.chunks), out / "state")

    def on_progress() -> None:
        calls[0] += 1
        if calls[0] >= stop_after:
            runtime.stop()

    assert not runtime.run(on_progress)
    run_file.update_run(out, state=run_file.STOPPED, pids={}, runtime="local")
    return out


def test_a_job_is_exact_wherever_it_is_stopped(
    tmp_path: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 50)
    lines, events = write(tmp_path), [str(tmp_path / "events.jsonl")]
    whole = run(tmp_path, "O", parts=2, **options)
    for oracle in ("own", "pyg"):
        assert check(tmp_path / "model", events, whole, oracle=oracle, every=7) == 0
    letters = [orjson.loads(line) for line in (whole / "dead_letters.jsonl").open()]
    bad = [line for line in lines if orjson.loads(line).get("attr") in BAD]
    assert [letter["raw"].encode() for letter in letters] == bad
    assert all(letter["error"].startswith("attr: ") for letter in letters)

    half = run(tmp_path, "H", stop_after=4, parts=1, **options)
    assert export(tmp_path / "S", half) == 0
    field = pq.read_schema(tmp_path / "S" / "edges.parquet").field("attr")
    assert field.type == pa.list_(pa.float32(), EDGE_WIDTH)
    rest = run(tmp_path, "R", snapshot=tmp_path / "S", parts=3, **options)
    assert check(tmp_path / "model", events, rest, snapshot=tmp_path / "S") == 0
    assert export(tmp_path / "S2", whole) == export(tmp_path / "S3", rest) == 0
    assert edges(tmp_path / "S2") == edges(tmp_path / "S3")
    assert any(any(row) for row in edges(tmp_path / "S2").values())
    assert "checked and not kept" not in capsys.readouterr().err

    asked = EmbedOptions(
        tmp_path / "model", tmp_path / "S", tmp_path / "E", placement=PartitioningOptions(parts=2), **options
    )
    said = r"--passes, .*: --model .*model: layer 2 \(gine_conv\) reads attributes of edges: its edges are held"
    with pytest.raises(UsageError, match=said):
        embed(replace(asked, passes=2))
    assert not asked.out.exists(), "it is refused before it begins"
    assert embed(asked) == embed(replace(asked, out=tmp_path / "E2", made_for=STREAMING)) == 0
    alone, streamed = read_rows(asked.out), read_rows(tmp_path / "E2")
    assert alone.keys() == streamed.keys() and all(np.array_equal(alone[one], streamed[one]) for one in alone)
    gone_on = run(tmp_path, "G", snapshot=tmp_path / "E2", parts=2, **options)
    assert check(tmp_path / "model", events, gone_on, snapshot=tmp_path / "S") == 0


def edges(folder: Path) -> dict[tuple[Any, Any], tuple[float, ...]]:
    rows = pq.read_table(folder / "edges.parquet").to_pylist()
    return {(row["src"], row["dst"]): tuple(row["attr"]) for row in rows}


def test_snapshots_of_another_width_are_refused(tmp_path: Path) -> None:
    vertices = pa.table({"id": [1, 2], "x": pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1))})
    pq.write_table(vertices, tmp_path / "vertices.parquet")
    ends = {"src": [1, 2], "dst": [2, 1]}
    narrow = pa.array([[1.0]] * 2, pa.list_(pa.float32(), 1))
    pq.write_table(pa.table(ends | {"attr": narrow}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match=r"edges\.parquet: attr: expected the model's 2 numbers, got 1"):
        open_snapshot(tmp_path, Features(1, 2))
    pq.write_table(pa.table(ends | {"attr": [[1.0, 2.0], [1.0]]}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match=r"edges\.parquet: row 1: attr: expected 2 numbers, got 1"):
        list(open_snapshot(tmp_path, Features(1, 2)).blocks())


def test_an_export_says_which_attributes_no_layer_has_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attention takes self-loops out and adds its own, so the attributes of those that came are nowhere."""
    layer = conv("gat_conv", IN_WIDTH, 3) | {"edge_channels": 2}
    save_model(make_model(3, [layer]), tmp_path / "model")
    edges = [{"op": "add_edge", "src": src, "dst": 2, "attr": [1.5, 2.5]} for src in (1, 2)]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, edges)))
    out = run(tmp_path, "O")
    capsys.readouterr()
    assert export(tmp_path / "S", out) == 0
    told = capsys.readouterr()
    assert orjson.loads(told.out)["attr_zeros"] == 1
    assert "attr of 1 edges is zeros in edges.parquet: nothing that the model returns reads it (self-loops)" in told.err
    table = pq.read_table(tmp_path / "S" / "edges.parquet").sort_by("src")
    assert table["attr"].to_pylist() == [[1.5, 2.5], [0.0, 0.0]]


def test_edges_whose_attributes_nothing_returned_reads_are_found() -> None:
    """Of a relation they are kept with its own edges, or with those of its mirror."""
    relations = (
        Relation(0, "a", 0, 2),
        Relation(0, "b", 0, 2),
        Relation(0, "rev_b", 0, 2, mirrors=1),
        Relation(0, "c", 0),
    )
    kinds = Kinds(("v",), (1,), relations)
    ends = {"src": np.array([0, 0, 0, 0, 1, 0]), "dst": np.array([1, 0, 1, 0, 0, 1])}
    graph: Any = SimpleNamespace(**ends, etype=np.array([0, 0, 1, 1, 2, 3]), kinds=kinds)

    def found(*keepers: AttributeKeeper) -> list[bool]:
        return unkept_attributes(graph, Features.of_kinds(kinds), keepers).tolist()

    a, b = AttributeKeeper("storage1", True, 0), AttributeKeeper("storage1", False, 2)
    assert found(a, b) == [False, True, False, False, False, False]
    assert found(a) == [False, True, True, True, True, False]
    assert found(b._replace(skips_loops=True)) == [True, True, False, True, False, False]
    assert not unkept_attributes(graph, Features(1), []).any(), "there are none"
