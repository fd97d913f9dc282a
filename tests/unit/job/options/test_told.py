"""What operators and Flink's job are told of the options: all that has an option's name, and nothing by accident."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import JobSpec
from freshet.job.options.config_file import load_run_config
from freshet.job.options.run_config import RunConfig, is_option, option_values, option_values_of_a_run
from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.parser.config import LetterConfig, ParserConfig
from freshet.operators.settings import OutletConfig, Settings, TableMemory, TailConfig
from freshet.partitioner.config import PartitionerConfig

# What has no option: found out by the run, or for tests alone. A field that is new and is meant to be an option, but
# bears another name than that, would fail here.
UNTOLD: dict[type, set[str]] = {
    PartitionerConfig: {
        "forbid_typed_loops",
        "edge_types",
        "out_degrees",
        "degree_relations",
        "one_loop_relations",
        "edge_keys",
        "types_max",
        "key_bits",
        "hash_seed",
    },
    ParserConfig: {"block_events"},
    SealingConfig: {
        "marker_epochs_max",
        "vertex_bytes",
        "edge_bytes",
        "journal_bytes",
        "waiting_bytes",
        "flush_epochs",
        "flush_ms",
    },
    CutLogConfig: {"folder", "checkpoints", "checkpoints_away", "topic", "topic_id", "opener", "properties", "secrets"},
    LetterConfig: {"target", "record_bytes"},
    OutletConfig: {"model_tag"},
    TailConfig: {"begins_empty"},
    TableMemory: {"budget_bytes", "folder", "counts_process"},
}


def config_of(**options: object) -> RunConfig:
    return load_run_config({"model": Path("M"), "events": ["e.jsonl"], "out": Path("O"), **options})


@pytest.mark.parametrize("kind", UNTOLD)
def test_every_field_is_an_option_or_found_out(kind: type) -> None:
    assert {field.name for field in fields(kind) if not is_option(field.name)} == UNTOLD[kind]


def test_no_class_of_the_settings_is_forgotten() -> None:
    settings = Settings("", "", 1, outlet=OutletConfig())
    assert {type(part) for part in settings.in_parts().values()} == set(UNTOLD)


def test_values_and_figures_come_by_name() -> None:
    config = config_of(epoch_events=7, checkpoint_interval="1.5s", publish_within="2s", partitioner="hdrf")
    expected = {"epoch_events": 7, "epoch_ms": 20, "marker_interval_ms": 1500, "publish_ms": 2000}
    assert expected.items() <= option_values(config, SealingConfig).items()
    assert option_values(config, PartitionerConfig)["strategy"] == "hdrf"


def test_what_a_job_has_for_its_life_is_told_once() -> None:
    config = config_of(partitioner="hdrf", undirected=True)
    assert option_values(config, PartitionerConfig)["undirected"] is True
    assert not {"strategy", "undirected"} & option_values_of_a_run(config, PartitionerConfig).keys()
    assert {"epoch_events", "publish_ms"} <= option_values_of_a_run(config, SealingConfig).keys()


def test_what_nobody_has_said_is_not_told() -> None:
    assert "id_kind" not in option_values(config_of(), PartitionerConfig)
    assert option_values(config_of(id_type="string"), PartitionerConfig)["id_kind"] == "string"


def test_flinks_job_is_told_its_options() -> None:
    config = config_of(parallelism=3, state_backend="hashmap", memory="1GiB", restarts=4, checkpoint_interval="2s")
    spec = JobSpec(**option_values(config, JobSpec) | {"out": "O", "parts": 3, "layers": 1, "checkpoint_dir": ""})
    assert (spec.parallelism, spec.state_backend, spec.managed_mb, spec.restarts) == (3, "hashmap", 1024, 4)
    assert (spec.checkpoint_interval_ms, spec.epoch_ms, spec.stay) == (2000, 20, False)


def test_the_folder_of_tails_holds_from_anywhere() -> None:
    assert option_values(config_of(tables="here/tables"), TailConfig)["tables_folder"] == str(
        Path("here/tables").absolute()
    )
    assert "tables_folder" not in option_values(config_of(), TailConfig)
    with pytest.raises(UsageError, match="expected a folder of the name tables"):
        config_of(tables="/var/lib/freshet")
