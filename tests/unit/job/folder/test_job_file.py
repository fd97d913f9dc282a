"""What a job is remembered by: written, read again, and found from a state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.job_file import SavedJob, job_of_state, paths_of
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.options.run_config import RunConfig
from freshet.job.run.settings import kept_options
from freshet.operators.epochs.config import CutLogConfig
from freshet.operators.factory import load_plan
from freshet.operators.settings import Settings
from tests.support.graphs.models import IN_WIDTH, conv, make_model

JOB = "0123456789abcdef"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    return tmp_path / "model"


def saved_in(out: Path, model: Path) -> SavedJob:
    settings = Settings(
        str(model), parts=2, job_id=JOB, cuts=CutLogConfig(str(out / "checkpoints" / "cuts")), **paths_of(out)
    )
    topic = TopicInput(source=0, bootstrap="h:1", topic="t", start={0: 7})
    saved = SavedJob(settings, load_plan(str(model)).sha256, None, "flink", (topic,), {"epoch_ms_given": 5})
    saved.write(out)
    return saved


def test_a_job_is_read_as_it_was_written(tmp_path: Path, model: Path) -> None:
    assert SavedJob.read(tmp_path / "out") is None
    assert SavedJob.read(tmp_path / "out") != saved_in(tmp_path / "out", model) == SavedJob.read(tmp_path / "out")


def test_options_with_units_are_kept_as_numbers(tmp_path: Path, model: Path) -> None:
    """What people write as 2GiB or 10s is read again as what it was, be it given or not."""
    given = {"memory": "2GiB", "tail": "64MiB", "epoch_ms": 20, "checkpoint_interval": "5s", "readers": 3}
    for options in ({}, given):
        config = RunConfig.model_validate({"model": model, "events": ["e.jsonl"], "out": tmp_path / "out", **options})
        kept = kept_options(config)
        replace(saved_in(tmp_path / "out", model), options=kept).write(tmp_path / "out")
        read = SavedJob.read(tmp_path / "out")
        assert read is not None
        assert dict(read.options) == kept
    assert (kept["memory_bytes"], kept["tail_bytes"], kept["readers"]) == (2 << 30, 64 << 20, 3)


def test_paths_are_those_of_today(tmp_path: Path, model: Path) -> None:
    saved = saved_in(tmp_path / "out", model)
    (tmp_path / "out" / "checkpoints" / "cuts").mkdir(parents=True)
    now = (tmp_path / "out").rename(tmp_path / "moved")
    settings = saved.settings_at(now, model)
    assert (settings.out, settings.image, settings.chunks) == tuple(
        str(now / name) for name in ("", "base", "job/chunks.jsonl")
    )
    assert saved.cut_log(now, beside=tmp_path / "new" / "cuts") == now / "checkpoints" / "cuts"
    (tmp_path / "new" / "cuts").mkdir(parents=True)
    assert saved.cut_log(now, beside=tmp_path / "new" / "cuts") == tmp_path / "new" / "cuts"
    save_model(make_model(2, [conv("graph_conv", IN_WIDTH, 3)]), model)
    load_plan.cache_clear()
    with pytest.raises(UsageError, match="not the model that the job in"):
        saved.settings_at(now, model)


def test_a_state_tells_its_job_by_the_folders_that_it_lies_in(tmp_path: Path, model: Path) -> None:
    saved_in(tmp_path / "out", model)
    assert job_of_state(tmp_path / "out" / layout.CHECKPOINTS / ("a" * 32) / "chk-1") == JOB
    assert job_of_state(tmp_path / "shared" / "fedcba9876543210" / "savepoints" / "savepoint-1") == "fedcba9876543210"
    assert job_of_state(tmp_path / "savepoint-1") is None
