"""A job of layers that a user wrote: run, stopped, refused without them, gone on with, checked, exported."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.gnn.any_plan import compile_any
from freshet.gnn.describe import describe_data
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import ANSWERS_FILE, Model, load_model, save_model
from freshet.gnn.own import loading
from freshet.gnn.own.loading import LayersError, load_layers
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.options.config_file import load_run_config
from freshet.job.results.check import check
from freshet.job.results.export import export
from freshet.job.results.full_pass import module_faults
from freshet.job.run import runner
from freshet.job.run.model import read_model, refuse_splits
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.factory import load_plan
from freshet.operators.snapshot.reader import open_snapshot
from tests.support.graphs.kind_streams import random_records as records_of_kinds
from tests.support.graphs.messages import gates_on_relations, written_models
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records

LAYERS = ["examples.gated_sum"]


def given(folder: Path, out: str, **options: Any) -> Any:
    paths = {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / out}
    return load_run_config(paths | {"runtime": "local", "parts": 2, "epoch_ms": 0, "epoch_events": 40, **options})


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no layers loaded, as in a new process."""
    monkeypatch.setattr(loading, "LOADED", {})
    load_plan.cache_clear()


@pytest.mark.parametrize("of_kinds", [False, True])
def test_a_job_of_written_layers(of_kinds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Model | KindsModel = gates_on_relations() if of_kinds else written_models(IN_WIDTH)["gated_sum"]()
    save_model(model, tmp_path / "model")
    kinds = model.features.kinds
    if kinds is None:
        records = random_records(random.Random(2), 400, IN_WIDTH, vertices=30)
    else:
        records = records_of_kinds(kinds, 2, 400)
    lines = [orjson.dumps(record) for record in records]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines))
    load_layers(LAYERS)
    assert runner.run(given(tmp_path, "out", layers=LAYERS)) == 0
    checked = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    assert check(**checked, snapshot=None, oracle=None, tolerance=1e-4, every=5) == 0  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"--oracle pyg: models with (kinds of vertices|messages of one's own)"):
        check(**checked, snapshot=None, oracle="pyg", tolerance=1e-4)  # type: ignore[arg-type]
    (first, *_) = describe_data(tmp_path / "model")["layers"]
    assert (first["relations"][0] if of_kinds else first)["aggregate"] == "sum of a network's messages"
    assert "GatedSum" not in (tmp_path / "out" / layout.SAVED_JOB).read_text()
    forget(monkeypatch)
    for refused in (
        lambda: runner.run(given(tmp_path, "other")),
        lambda: runner.run(given(tmp_path, "out", resume="latest")),
        lambda: describe_data(tmp_path / "model"),
    ):
        with pytest.raises(LayersError, match=r"examples.gated_sum:GatedSum, .*; give --layers examples.gated_sum"):
            refused()
    served = ServedJob.read(tmp_path / "out")
    assert served is not None
    assert served.width == 3, "who reads embeddings alone needs no layers"
    load_layers(LAYERS)
    assert export(snapshot=tmp_path / "graph", job=tmp_path / "out", state=None) == 0
    assert open_snapshot(tmp_path / "graph", model.features).edges > 0


def test_a_median_is_refused_where_vertices_are_split() -> None:
    options = {"aggr": {"q": 0.5, "interpolation": "lower"}, "program": [{"op": "cat", "of": ["source"]}]}
    plan = compile_any(make_model(0, [conv("message_conv", 2, 2, **options)]))
    for parts, strategy in ((1, "hybrid"), (2, "hash")):
        refuse_splits(plan, parts, strategy)
    with pytest.raises(
        UsageError, match=r"^median of .* reads all in-edges of a vertex at once.* --partitioner locality"
    ):
        refuse_splits(plan, 2, "hybrid")


def test_an_aggregate_without_merge_is_refused_in_several_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.top_k import Largest

    save_model(written_models(IN_WIDTH)["top_k"](), tmp_path / "model")
    monkeypatch.setattr(Largest, "merge", None)
    monkeypatch.setattr(runner, "are_ready", lambda _: pytest.fail("kernels are compiled first"))
    for refused in (read_model, runner.run):
        with pytest.raises(
            UsageError, match=r"TopK's own aggregate .*has no `merge` .* run with --parts 1, or with --part"
        ):
            refused(given(tmp_path, "out"))
    for one in ({"parts": 1}, {"partitioner": "hash"}):
        assert read_model(given(tmp_path, "out", **one)).parts


def test_a_model_that_is_no_longer_what_its_module_answered_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was read judges the run, and the module's answers at the export judge what was read; without, it says so."""
    pytest.importorskip("torch_geometric")
    from freshet.gnn.pyg.export import export_model
    from tests.support.graphs.read_convs import GatedRelation

    export_model(GatedRelation(IN_WIDTH, IN_WIDTH, 4).eval(), tmp_path / "model", features=IN_WIDTH)
    model = load_model(tmp_path / "model")
    assert (tmp_path / "model" / ANSWERS_FILE).exists()
    assert module_faults(tmp_path / "model", model, 1e-4) == (2, [])
    changed = {name: weight * np.float32(1.5) for name, weight in model.weights.items()}
    other = model.model_copy(update={"weights": changed})
    held, faults = module_faults(tmp_path / "model", other, 1e-4)
    assert held == 2 and len(faults) >= 1 and "other rows than your module did at the export" in faults[0]
    save_model(other, tmp_path / "model")  # the answers are of another one
    assert not (tmp_path / "model" / ANSWERS_FILE).exists()
    assert module_faults(tmp_path / "model", other, 1e-4) == (0, [])
    assert "what was read of your module judges itself" in capsys.readouterr().err
    assert module_faults(tmp_path, make_model(0, [conv("sage_conv", 2, 2)]), 1e-4) == (None, [])
    (tmp_path / "model" / ANSWERS_FILE).write_bytes(b"no numbers")
    with pytest.raises(UsageError, match="has no answers of a module"):
        module_faults(tmp_path / "model", other, 1e-4)
