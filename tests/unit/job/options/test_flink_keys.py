from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import flink_options
from freshet.job.options.config_file import load_run_config
from freshet.job.options.flink_keys import (
    KEYS,
    OWN,
    bare_secrets,
    is_secret,
    of_processes,
    read_flink,
    resolve,
    without_secrets,
)

BASE: dict[str, Any] = {"model": "M", "events": ["E"], "out": "O"}


def refusal(**given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        load_run_config(BASE | given)
    return str(caught.value)


def test_a_flag_wins_over_the_file_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "flink:\n  s3:\n    endpoint: http://a:1\n    path-style-access: true\n  task.cancellation.timeout: 1000\n"
    )
    config = load_run_config(BASE | {"flink": ["s3.endpoint=http://b:2"]}, tmp_path / "c.yaml")
    assert config.flink == {
        "s3.endpoint": "http://b:2",
        "s3.path-style-access": "true",
        "task.cancellation.timeout": "1000",
    }
    assert load_run_config(BASE, tmp_path / "c.yaml").flink["s3.endpoint"] == "http://a:1"
    assert load_run_config(BASE | {"flink": ["s3.endpoint=a=b"]}).flink == {"s3.endpoint": "a=b"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("execution.checkpointing.interval=1s", "-D: execution.checkpointing.interval: can't be set: give --c"),
        ("python.execution-mode=process", "-D: python.execution-mode: can't be set: operators keep"),
        ("execution.checkpointing.unaligned.enabled=true", "can't be set: state relies on aligned barriers"),
        ("execution.checkpointing.mode=AT_LEAST_ONCE", "can't be set: Freshet's results are exact only"),
        ("pipeline.object-reuse=false", "can't be set: Freshet's results are exact only"),
        ("restart-strategy.type=none", "can't be set: write `restarts: N` in the --config file"),
        ("taskmanager.memory.process.size=2g", "can't be set: the run sizes its processes"),
        ("state.backend=hashmap", "can't be set: write `state-backend: rocksdb|hashmap` in the --config file"),
        ("$internal.pipeline.job-id=1", "can't be set: it is Flink's own"),
        ("exectuion.checkpointing.timeout=1 min", "not an option of Flink; did you mean `execution.check"),
        ("no.such.thing=1", "-D: no.such.thing: not an option of Flink; "),
        ("taskmanager.memory.segment-size=much", "got 'much', expected a size such as 512 mb"),
        ("execution.checkpointing.timeout=soon", "got 'soon', expected a time such as 30 s or 500 ms"),
        ("execution.checkpointing.incremental=perhaps", "got 'perhaps', expected true or false"),
        ("execution.checkpointing.tolerable-failed-checkpoints=1.5", "got '1.5', expected a whole number"),
        ("classloader.check-leaked-classloader", "classloader.check-leaked-classloader: got no value, expected"),
        ("=1", "-D: got no key before `=`, expected KEY=VALUE"),
    ],
)  # fmt: skip
def test_what_can_not_be_set_is_named_with_the_reason(given: str, message: str) -> None:
    assert message in refusal(flink=[given])


def test_a_key_that_stands_there_twice() -> None:
    assert refusal(flink=["s3.endpoint=a", "s3.endpoint=b"]) == "-D: s3.endpoint: stands there twice; keep one"
    assert "got str, expected a mapping such as" in refusal(flink="s3.endpoint=a")


def test_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("flink: {execution.checkpointing.mode: EXACTLY_ONCE}\n")
    with pytest.raises(UsageError, match=r"^.*/c.yaml: -D: execution.checkpointing.mode: can't be set"):
        load_run_config(BASE, tmp_path / "c.yaml")


def test_good_values_pass() -> None:
    given = {
        "execution.checkpointing.timeout": "5 min",
        "taskmanager.memory.network.max": "64 mb",
        "execution.checkpointing.incremental": False,
        "taskmanager.load-balance.mode": "slots",
        "metrics.reporter.mine.factory.class": "org.example.Mine",
        "pipeline.global-job-parameters.mine": "1",
        "classloader.parent-first-patterns.additional": ["org.a", "org.b"],
    }
    read = read_flink(given)
    assert read["classloader.parent-first-patterns.additional"] == "org.a;org.b"
    assert read["execution.checkpointing.incremental"] == "false"


def test_options_that_freshet_sets_are_ones_of_flink(tmp_path: Path) -> None:
    """Each key that a run sets is known, so that a new Flink's other names are noticed."""
    known = KEYS.read_text()
    for shape in ({}, {"parallelism": 2, "parts": 2}, {"cluster": "h:1"}):
        job = JobSpec(out=str(tmp_path), layers=2, resume="/x", **shape)
        assert not [key for key in flink_options(job) if f'"{key}"' not in known]
    assert not [key for key in OWN if key[-1] not in ".-" and f'"{key}"' not in known]


def test_a_users_option_wins_and_is_not_written_down(tmp_path: Path) -> None:
    given = {"execution.checkpointing.timeout": "1 min", "s3.secret-key": "s3cret"}
    job = JobSpec(out=str(tmp_path), layers=2, user_options=given)
    assert flink_options(job).items() >= given.items()
    assert "s3cret" not in f"{job!r}{job.model_dump_json()}"
    on_cluster = flink_options(job.model_copy(update={"cluster": "h:1"}))
    assert on_cluster["execution.checkpointing.timeout"] == "1 min"
    assert "s3.secret-key" not in on_cluster, "its processes have their own, and secrets do not travel"


def test_secrets() -> None:
    options = read_flink({"s3.secret-key": "${S}", "s3.access-key": "id", "fs.azure.account.key": "literal"})
    assert without_secrets(options) == {"s3.secret-key": "${S}", "s3.access-key": "id"}
    assert resolve(options, {"S": "s3cret"})["s3.secret-key"] == "s3cret"
    with pytest.raises(UsageError, match=r"^flink: s3.secret-key: the environment variable S is not set$"):
        resolve(options, {})
    with pytest.raises(UsageError, match=r"flink: execution.checkpointing.timeout: got 'x'"):
        resolve({"execution.checkpointing.timeout": "${S}"}, {"S": "x"})
    assert "literal" not in repr(load_run_config(BASE | {"flink": ["fs.azure.account.key=literal"]}))
    assert is_secret("s3.secret-key")
    assert not is_secret("s3.endpoint")
    assert bare_secrets(["s3.secret-key=abc", "s3.access-key=id", "gs.token=${T}"]) == ["s3.secret-key"]


def test_what_a_running_cluster_does_not_take() -> None:
    keys = ["taskmanager.memory.network.max", "s3.endpoint", "execution.checkpointing.timeout", "pipeline.name"]
    assert of_processes(keys) == keys[:2]
