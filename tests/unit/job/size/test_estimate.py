"""`freshet size`: its miniature against the tables of a whole graph, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from freshet.gnn.describe import describe_data
from freshet.gnn.model import save_model
from freshet.job import cli
from freshet.job.size import miniature
from freshet.job.size.estimate import estimate
from freshet.job.size.miniature import ID_BYTES, GraphSize, operators_of, tables_of, used_bytes
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.schema import KEY_BYTES
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.runs.inside import call_inside
from tests.support.runs.jobs import make_input
from tests.unit.test_imports import ROOT

MODEL = ROOT / "tests" / "data" / "state" / "format-2" / "model"


@pytest.mark.parametrize(
    "shape",
    [
        GraphSize((24_000,), (160_000,)),
        GraphSize((24_000,), (160_000,), 4),
        GraphSize((24_000,), (160_000,), 1, "string"),
        GraphSize((24_000,), (160_000,), 1, "int", edge_keys="int"),
        GraphSize((24_000,), (160_000,), 3, "int", edge_keys="string"),
    ],
)
def test_a_smaller_graph_tells_what_the_whole_one_takes(shape: GraphSize, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = operators_of(MODEL, shape)
    monkeypatch.setattr(miniature, "EDGES_MAX", 50_000)
    small = operators_of(MODEL, shape)
    assert list(small) == list(whole)
    assert {"partitioner", "storage0", "storage1", "storage2"} <= set(whole)
    for name, held in whole.items():
        assert small[name].memory == pytest.approx(held.memory, rel=0.2), name
        assert small[name].state == pytest.approx(held.state, rel=0.2), name


def test_keys_take_memory_of_the_partitioner_and_in_the_lists_of_each_layer(tmp_path: Path) -> None:
    save_model(make_model(1, [conv("sage_conv", 4, 4), conv("graph_conv", 4, 4)]), tmp_path)
    told, m = describe_data(tmp_path), 40_000

    def bytes_of(kind: str, edges: int = m) -> dict[str, dict[str, int]]:
        tables, _ = tables_of(tmp_path, GraphSize((1000,), (edges,), edge_keys=kind))
        return {name: {one.name: used_bytes(one) for one in found} for name, found in tables.items()}

    def lists_of(kind: str, number: int) -> int:
        """Lists take room in steps, which a few sizes of the graph even out."""
        found = (bytes_of(kind, edges)[f"storage{number}"] for edges in (30_000, 35_000, 40_000, 45_000, 50_000))
        return sum(size for one in found for table, size in one.items() if table.endswith((".pool", ".weight")))

    plain, ints, texts = map(bytes_of, ("", "int", "string"))
    for number, layer in enumerate(told["layers"], 1):
        lists = [lists_of(kind, number) for kind in ("", "int")]
        of_edge = layer["state_bytes_per_edge"]
        assert lists[1] / lists[0] == pytest.approx((of_edge + layer["key_bytes_per_edge"]) / of_edge, rel=0.1), number
    assert [layer["key_bytes_per_edge"] for layer in told["layers"]] == [8, 16]
    assert told["key_bytes_per_edge"] == 24
    without, with_ints, with_texts = (sum(found["partitioner"].values()) for found in (plain, ints, texts))
    assert with_ints - without == pytest.approx(KEY_BYTES * m, rel=0.05)
    assert 0.65 < (with_texts - with_ints) / (ID_BYTES * m) < 1.05, "the pool of texts is counted as room is made"


def test_more_edges_than_pairs_are_parallel(tmp_path: Path) -> None:
    save_model(make_model(1, [conv("sage_conv", 4, 4)]), tmp_path)
    few, many = (tables_of(tmp_path, GraphSize((30,), (m,), edge_keys="int"))[0]["partitioner"] for m in (900, 5000))
    rows = [int(next(one for one in found if one.name == "edge").part_rows.sum()) for found in (few, many)]
    assert rows == [900, 5000]


def test_an_operator_without_work_grows_with_what_it_holds() -> None:
    few, many, edges = (
        estimate(MODEL, GraphSize((n,), (m,))) for n, m in ((8000, 32_000), (16_000, 64_000), (8000, 256_000))
    )
    assert 1.7 < many.tables / few.tables < 2.3
    assert edges.operators["partitioner"] > 5 * few.operators["partitioner"]
    assert edges.change_log == few.change_log
    assert many.server > few.server


def test_a_job_whose_embeddings_are_asked_for_writes_inner_rows(tmp_path: Path) -> None:
    """Beside what such a job has written; it has all operators but those of the last layer."""
    layers, m, width = [conv("sage_conv", IN_WIDTH, 50), conv("gcn_conv", 50, 4)], 800, 50
    given, out = make_input(tmp_path, m, layers=layers), tmp_path / "out"
    options = "--runtime", "local", "--embeddings", "asked", "--epoch-events", m
    code, _, errors = call_inside("run", *given.options, "--out", out, *options)
    assert code == 0, errors
    log = ChangeLogReader(out).final()
    shape = GraphSize((len(log.ids),), (m,))
    eager, asked = (estimate(given.model, shape._replace(is_asked=one)) for one in (False, True))
    told = describe_data(given.model)["asked"]
    assert (told["layer"], told["row_bytes_per_vertex"][""]) == (1, log.vectors.nbytes / len(log.ids)) == (1, 4 * width)
    groups = [pq.read_metadata(path).row_group(0) for path in (out / "inner").glob("part-*.parquet")]
    assert asked.change_log == pytest.approx(sum(one.total_byte_size for one in groups), rel=0.2)
    assert asked.operators == {name: size for name, size in eager.operators.items() if not name.endswith("2")}
    assert eager.what_if - asked.what_if == log.vectors.nbytes


def test_json_has_bytes_of_memory_and_disk(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["size", str(MODEL), "--vertices", "1000", "--edges", "4000", "--undirected", "--json"]
    lines = []
    for more in (["--edge-key", "string"], []):
        with pytest.raises(SystemExit) as end:
            cli.main([*given, *more])
        assert not end.value.code
        [line] = capsys.readouterr().out.splitlines()
        lines.append(json.loads(line))
    keyed, found = lines
    assert keyed["memory"]["operators"]["partitioner"] > 1.3 * found["memory"]["operators"]["partitioner"]
    assert found["memory"]["tables"] == pytest.approx(sum(found["memory"]["operators"].values()), abs=10)
    assert found["disk"]["change_log"] == pytest.approx(found["disk"]["change_log_per_million_rows"] / 1e3, rel=0.01)


def test_text_has_a_line_for_each_operator(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["size", str(MODEL), "--vertices", "1000", "--edges", "4000", "--parts", "2"])
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")][:3] == [
        "partitioner",
        "storage0",
        "storage1",
    ]
    assert "tail1" in text and "per million rows" in text


def test_a_model_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["size", str(tmp_path), "--vertices", "10", "--edges", "10"])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"freshet: --model {tmp_path}: ")
