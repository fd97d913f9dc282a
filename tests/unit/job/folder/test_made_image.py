"""The image in a snapshot's folder: which jobs may start from it, and what they get."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.gnn.plan import compile_plan
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.made_image import MADE, MadeImage
from freshet.operators.graph.rules import graph_rules
from freshet.partitioner.config import PartitionerConfig
from freshet.state.image import write_image
from freshet.state.table import TableSet
from tests.support.graphs.models import conv, make_model

MADE_WITH = PartitionerConfig("hdrf", hdrf_lambda=1.5, edge_types=("a", "b"), hash_seed=7)
HERE = {"blas": "one", "kernels": "two"}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    base = tmp_path / "S2" / layout.IMAGE
    for place in ("partitioner-0", "storage0-1"):
        tables = TableSet()
        table = tables.add("t", "i4")
        table.reserve(5)
        table.touch_rows(table.part(0)[:1])
        table.data[:5] = 3
        write_image(tables, base / place, 0)
    for name in (layout.EMBEDDINGS, layout.EPOCHS):
        (tmp_path / "S2" / name).mkdir()
        (tmp_path / "S2" / name / "one.parquet").write_bytes(b"rows")
    MadeImage.describe(base, 2, MADE_WITH, 10, HERE)
    return tmp_path / "S2"


def made(snapshot: Path) -> MadeImage:
    found = MadeImage.of(snapshot)
    assert found is not None
    return found


def test_it_tells_what_it_was_made_with(snapshot: Path, tmp_path: Path) -> None:
    found = made(snapshot)
    assert (found.parts, found.partitioning, found.vertices) == (2, MADE_WITH, 10)
    assert sorted(found.images) == ["partitioner-0", "storage0-1"]
    found.check(2, replace(MADE_WITH, hash_seed=8), HERE)
    found.check(2, MADE_WITH, {})  # a job that may run anywhere
    assert MadeImage.of(tmp_path) is None


def test_a_job_of_the_same_typed_model_takes_it(snapshot: Path) -> None:
    plan = compile_plan(make_model(1, [conv("graph_conv", 3, 2)], edge_types=MADE_WITH.edge_types or ()))
    config = PartitionerConfig.of(graph_rules(plan, undirected=False), strategy="hdrf", hdrf_lambda=1.5)
    made(snapshot).check(2, config, HERE)


@pytest.mark.parametrize(
    ("parts", "changes", "wanted"),
    [
        (4, {}, "made with --parts 2, this job has --parts 4; give --parts 2, or the snapshot that was embedded"),
        (2, {"strategy": "hash"}, "made with --partitioner hdrf, this job has --partitioner hash"),
        (2, {"undirected": True}, "made with --directed, this job has --undirected; give --directed"),
        (
            2,
            {"hdrf_lambda": 2.0},
            r"made with `hdrf-lambda: 1.5` .* has `hdrf-lambda: 2.0` in --config; give `",
        ),
        (
            2,
            {"hdrf_epsilon": 2.0},
            r"made with `hdrf-epsilon: 1.0` .* has `hdrf-epsilon: 2.0` in --config; give `",
        ),
        (
            2,
            {"hybrid_threshold": 5},
            r"made with `hybrid-threshold: 1000` .* has `hybrid-threshold: 5` in --config; give `",
        ),
        (2, {"id_kind": "string"}, "made with --id-type int, this job has --id-type string"),
        (2, {"edge_types": ("a",)}, "made with edge_types"),
    ],
)
def test_jobs_that_would_make_another_are_refused_by_name(
    parts: int, changes: dict[str, object], wanted: str, snapshot: Path
) -> None:
    with pytest.raises(UsageError, match=wanted):
        made(snapshot).check(parts, replace(MADE_WITH, **changes), HERE)  # type: ignore[arg-type]


def test_another_processor_is_refused(snapshot: Path) -> None:
    with pytest.raises(UsageError, match="was computed with blas one, kernels two, this process computes with blas x"):
        made(snapshot).check(2, MADE_WITH, {"blas": "x"})


def test_another_format_is_refused(snapshot: Path) -> None:
    path = snapshot / MADE
    write_json(path, read_json(path, dict[str, Any], "") | {"format": 1})
    with pytest.raises(UsageError, match="of another version of Freshet"):
        MadeImage.of(snapshot)


def test_a_job_gets_its_files(snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(snapshot).start(tmp_path / "linked")

    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    made(snapshot).start(tmp_path / "copied")
    wanted = {path.relative_to(snapshot): path.read_bytes() for path in snapshot.rglob("*") if path.is_file()}
    del wanted[Path(MADE)]
    assert len(wanted) == 6
    for name in ("linked", "copied"):
        out = tmp_path / name
        assert wanted == {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [layout.EMBEDDINGS, layout.EPOCHS])
def test_what_lies_beside_the_image_is_looked_at(snapshot: Path, tmp_path: Path, name: str) -> None:
    path = snapshot / name / "one.parquet"
    path.write_bytes(b"7.07")
    with pytest.raises(DamagedFileError, match=r"one\.parquet does not match its checksum; embed the snapshot again"):
        made(snapshot).start(tmp_path / "out")
    path.write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"one\.parquet has 0 bytes, expected 4"):
        made(snapshot).start(tmp_path / "out")
    path.rename(path.with_name("other.parquet"))
    with pytest.raises(DamagedFileError, match=r"other\.parquet is not one of its files"):
        made(snapshot).start(tmp_path / "out")
    (snapshot / name / "other.parquet").unlink()
    with pytest.raises(DamagedFileError, match=r"one\.parquet is missing"):
        made(snapshot).start(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_description_is_refused(snapshot: Path) -> None:
    path = snapshot / MADE
    path.write_bytes(path.read_bytes().replace(b'"hash_seed": 7', b'"hash_seed": 6'))
    refusal = r"made\.json: damaged: .* not match its checksum; embed the snapshot"
    with pytest.raises(DamagedFileError, match=refusal):
        MadeImage.of(snapshot)


def test_an_image_of_something_else_is_refused(snapshot: Path, tmp_path: Path) -> None:
    path = snapshot / layout.IMAGE / "storage0-1" / "image.json"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DamagedFileError, match="storage0-1: is not the image that was made"):
        made(snapshot).start(tmp_path / "out")
