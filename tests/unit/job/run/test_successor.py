"""A job that takes the place of another one has its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from freshet.gnn.model import save_model
from freshet.job.folder.job_file import SavedJob
from freshet.job.options.config_file import load_run_config
from freshet.job.options.run_config import RunConfig
from freshet.job.run.new_job import prepare
from freshet.job.run.successor import options_of_successor
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.unit.job.run.test_resume import EVENTS

GIVEN: dict[str, Any] = {
    "parts": 4,
    "parallelism": 2,
    "partitioner": "hdrf",
    "undirected": True,
    "edge_ttl": "30d",
    "ts_jump": "36h",
    "ts_unit": "s",
    "edge_key": "pay",
    "id_type": "string",
    "epoch_events": 100,
    "epoch_ms": 7,
    "epoch_event_time": "1d",
    "idle": "off",
    "checkpoint_interval": "90s",
    "max_rejected": "5%",
    "restarts": 3,
    "readers": 2,
    "flink": {"s3.endpoint": "http://h:1"},
    "dead_letters_max": "5MiB",
    "what_if": True,
    "name": "fraud",
}


def taken_over(folder: Path, **options: Any) -> tuple[RunConfig, RunConfig, dict[str, Any]]:
    """The options of a job, those of the next one, and what it was given of the first one."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), folder / "model")
    (folder / "events.jsonl").write_bytes(EVENTS)
    own: dict[str, Any] = {"model": folder / "model", "events": [str(folder / "events.jsonl")]}
    first = load_run_config({**own, "out": folder / "O", **options})
    prepare(first, folder / "O")
    saved = SavedJob.read(folder / "O")
    assert saved is not None
    found = options_of_successor(saved)
    (folder / "next.yaml").write_text(yaml.safe_dump(found))
    return first, load_run_config({**own, "out": folder / "O2"}, folder / "next.yaml"), found


def test_all_that_a_job_was_given_goes_along_as_people_write_it(tmp_path: Path) -> None:
    first, following, found = taken_over(tmp_path, **GIVEN)
    assert found == {name: value for name, value in GIVEN.items() if name != "name"}
    assert following.model_dump(exclude={"out", "name"}) == first.model_dump(exclude={"out", "name"})


def test_a_job_without_options_gives_none_but_what_it_has_found(tmp_path: Path) -> None:
    _, _, found = taken_over(tmp_path)
    assert found == {"id_type": "int"} | ({"parts": found["parts"]} if "parts" in found else {})


@pytest.mark.parametrize("name", ["name", "dead_letters"])
def test_what_two_jobs_cannot_share_stays(name: str, tmp_path: Path) -> None:
    value = str(tmp_path / "letters.jsonl") if name == "dead_letters" else "fraud"
    assert name not in taken_over(tmp_path, **{name: value})[2]
