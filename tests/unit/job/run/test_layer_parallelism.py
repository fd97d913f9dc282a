"""`--layer-parallelism`: the processes of each layer, of a new job and of one that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.folder import run_file
from freshet.job.options.config_file import load_run_config
from freshet.job.options.run_config import RunConfig
from freshet.job.run.job_states import JobStates
from freshet.job.run.new_job import prepare
from freshet.job.run.resume import resume
from freshet.job.run.runner import spec_of
from freshet.operators.dataflow import SINK, LayerTasks
from tests.support.graphs.models import IN_WIDTH, conv, make_model

EVENTS = b"".join(orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) + b"\n" for n in range(20))


def flags(folder: Path, **options: Any) -> dict[str, Any]:
    return {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / "out", **options}


def resumed(folder: Path, **options: Any) -> RunConfig:
    config = load_run_config(flags(folder, resume="latest", **options))
    return resume(config, folder / "out")[0]


def test_a_job_goes_on_with_other_processes_of_each_layer(tmp_path: Path) -> None:
    """Other numbers of processes replace what was chosen for the former ones."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3), conv("graph_conv", 3, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    begun = flags(tmp_path, layer_parallelism="1,4", parallelism=5, readers=3, epoch_ms=0)
    config, job = load_run_config(begun), prepare(load_run_config(begun), tmp_path / "out")
    states = JobStates(tmp_path / "out", job.settings.job_id, None, "--resume")
    spec = spec_of(job, config, states)
    assert (job.settings.parts, spec.parallelism, spec.groups, spec.layer_parallelism) == (4, 5, 2, (1, 4))
    assert spec.stage["layer_tasks"] == ((4,), (4,), (1, 1, 1, 1))
    assert LayerTasks.of_counts(4, by_layer=spec.stage["layer_tasks"]).of(SINK).tasks == 4
    shapes: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
        ({}, (5, None, (1, 4), 3)),
        ({"layer_parallelism": "2,1"}, (1, None, (2, 1), None)),
        ({}, (1, None, (2, 1), None)),
        ({"layer_parallelism": "2,3", "parallelism": 5, "readers": 2}, (5, None, (2, 3), 2)),
        ({"parallelism": 2}, (2, None, None, None)),
        ({}, (2, None, None, None)),
    ]
    for options, found in shapes:
        run_file.update_run(tmp_path / "out", pids={}, state="stopped")
        config = resumed(tmp_path, **options)
        assert (*config.processes, config.readers) == found
    run_file.update_run(tmp_path / "out", pids={}, state="stopped")
    for wrong, named in (
        ("1,5", "layer 2 would have 5 processes, and the job has 4 parts"),
        ("1", "got 1 number, and"),
    ):
        with pytest.raises(UsageError, match=named):
            resumed(tmp_path, layer_parallelism=wrong)


def test_a_new_job_without_a_number_for_each_layer_is_refused(tmp_path: Path) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    for runtime in ("flink", "local"):
        options = flags(tmp_path, layer_parallelism="1,2", runtime=runtime)
        with pytest.raises(UsageError, match="--layer-parallelism 1,2: got 2 numbers, and the model has 1 layer;"):
            prepare(load_run_config(options), tmp_path / "out")
        assert not (tmp_path / "out" / "job").exists()
