"""How the epochs of a job are cut when it goes on, where a version before wrote its options."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.files.json_file import write_json
from freshet.gnn.model import save_model
from freshet.job.folder import run_file
from freshet.job.options.config_file import load_run_config
from freshet.job.run.new_job import prepare
from freshet.job.run.resume import resume
from tests.support.graphs.models import IN_WIDTH, conv, make_model


@pytest.mark.parametrize(
    ("saved_options", "sealing"),
    [
        ({"epoch_events": 40, "epoch_ms": 20}, (40, 20, 0)),  # before epochs could adapt
        ({"epoch_events_given": None, "epoch_ms": 20, "latency_target_s": 0.0}, (1000, 20, 0)),  # without any option
        ({"epoch_events_given": None, "epoch_ms": 20, "latency_target_s": 0.02}, (10_000, 20, 20)),
    ],
)
def test_a_job_of_a_version_before_keeps_its_epochs(
    tmp_path: Path, saved_options: dict[str, Any], sealing: tuple[int, int, float]
) -> None:
    given = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b'{"op":"add_edge","src":1,"dst":2}\n')
    prepare(load_run_config(given), tmp_path / "out")
    run_file.update_run(tmp_path / "out", pids={}, state="stopped")
    saved = tmp_path / "out" / "job" / "job.json"
    content = orjson.loads(saved.read_bytes())
    for name in ("epoch_events_given", "epoch_ms_given", "latency_target_given"):
        del content["options"][name]
    content["options"] |= saved_options
    write_json(saved, content)
    for _ in range(2):
        config, job = resume(load_run_config({**given, "resume": "latest"}), tmp_path / "out")
        found = job.settings.sealing
        assert (found.epoch_events, found.epoch_ms, found.latency_target_ms) == sealing
        assert (config.epoch_events, config.epoch_ms, config.latency_target_ms) == sealing
