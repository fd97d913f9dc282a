"""`freshet size`: its miniature against the tables of a whole graph, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.job import cli
from freshet.job.size import miniature
from freshet.job.size.estimate import estimate
from freshet.job.size.miniature import GraphSize, operators_of
from tests.unit.test_imports import ROOT

MODEL = ROOT / "tests" / "data" / "state" / "format-2" / "model"


@pytest.mark.parametrize(
    "shape",
    [
        GraphSize((24_000,), (160_000,)),
        GraphSize((24_000,), (160_000,), 4),
        GraphSize((24_000,), (160_000,), 1, "string"),
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


def test_an_operator_without_work_grows_with_what_it_holds() -> None:
    few, many, edges = (
        estimate(MODEL, GraphSize((n,), (m,))) for n, m in ((8000, 32_000), (16_000, 64_000), (8000, 256_000))
    )
    assert 1.7 < many.tables / few.tables < 2.3
    assert edges.operators["partitioner"] > 5 * few.operators["partitioner"]
    assert edges.change_log == few.change_log
    assert many.server > few.server


def test_json_has_bytes_of_memory_and_disk(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["size", str(MODEL), "--vertices", "1000", "--edges", "4000", "--undirected", "--json"])
    assert not end.value.code
    [line] = capsys.readouterr().out.splitlines()
    found = json.loads(line)
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
