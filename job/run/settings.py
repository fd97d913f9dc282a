"""Settings of a job that each of its runs determines, the place of its cut log, and the options that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from freshet.job.console import say
from freshet.job.folder import layout
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.options.flink_keys import without_secrets
from freshet.job.options.marks import Holds, Option
from freshet.job.options.run_config import RunConfig, option_values_of_a_run, that_hold
from freshet.job.run.outputs import Outputs, outlet_settings
from freshet.job.uris import is_remote, local_path
from freshet.operators.epochs.config import CutLogConfig
from freshet.operators.settings import Settings, TableMemory

BEGUN = "start_from", "ignore_positions"  # options that only the begin of a job uses
OPENER = "freshet.job.kafka.cut_channel:open_channel"
Topics = Sequence[tuple[str, KafkaAddress]]  # of the job, each with its option


def settings_of_run(
    settings: Settings, config: RunConfig, out: Path, job_id: str, outputs: Outputs, model_sha256: str
) -> Settings:
    """Return a job's settings with what each of its runs may change."""
    settings = replace(settings, job_id=job_id, outlet=outlet_settings(config, model_sha256, settings.outlet))
    parts = {
        name: replace(part, **option_values_of_a_run(config, type(part))) for name, part in settings.in_parts().items()
    }
    target = layout.dead_letters_to(config.dead_letters, out)
    where = layout.checkpoint_dir_of_job(config.checkpoint_dir, job_id)
    return replace(
        settings,
        **parts
        | {
            "cuts": cuts_of_run(parts["cuts"], where, out, by_flink=config.runtime == "flink"),
            "letters": replace(parts["letters"], target=target, record_bytes=outputs.letter_bytes),
            "memory": table_memory(config.memory_bytes if config.runtime == "local" else None, out),
        },
    )


def table_memory(budget_bytes: int | None, out: Path) -> TableMemory:
    """Return the memory for tables within --memory of a local job, whose process is all that it has."""
    return TableMemory() if budget_bytes is None else TableMemory(budget_bytes, str(out / layout.TMP))


def kept_options(config: RunConfig) -> dict[str, Any]:
    """Return the options that need not be repeated to go on with the job; a path as one that holds anywhere."""
    kept = {name: _kept(getattr(config, name), mark) for name, mark in that_hold(Holds.KEPT)}
    return kept | {"flink": without_secrets(config.flink)}


def _kept(value: Any, mark: Option) -> Any:
    value = list(value) if isinstance(value, tuple) else value  # as JSON has it
    return str(local_path(value)) if mark.is_place and value is not None and not is_remote(value) else value


def cuts_of_run(cuts: CutLogConfig, checkpoints: str | None, out: Path, *, by_flink: bool) -> CutLogConfig:
    """Return where the cut log is, given what it was before; a topic stays one, and so does a folder."""
    folder = layout.checkpoint_folder(checkpoints, out)
    return replace(
        cuts,
        folder=str(folder / layout.CUT_LOG),
        checkpoints=str(folder) if by_flink else "",
        checkpoints_away=by_flink and is_remote(checkpoints or ""),
    )


def cuts_of_new_job(cuts: CutLogConfig, topics: Topics, properties: ClientProperties, job_id: str) -> CutLogConfig:
    """Make the topic of a job whose checkpoints are on another store, if it has brokers.

    Raises: JobFailed where they refuse it.
    """
    if not cuts.checkpoints_away:
        return cuts
    if not topics:
        say(
            f"warning: --checkpoint-dir is on another store, but the cut log is in {cuts.folder}, on this one, since "
            "the job has no topic; to go on from another machine, keep --out on a file system that both have"
        )
        return cuts
    from freshet.job.kafka.cut_topic import address_of, make_cut_topic

    address = address_of(job_id, topics)
    topic_id = make_cut_topic(address, properties, say)
    return replace(cuts, topic=str(address), topic_id=topic_id, opener=OPENER)


def cuts_of_resumed_job(
    cuts: CutLogConfig, topics: Topics, properties: ClientProperties, job_id: str, out: Path
) -> CutLogConfig:
    """Find a cut log that is a topic where today's options have the brokers.

    Raises: UsageError where it is gone, or is another one; JobFailed without brokers.
    """
    if not cuts.topic:
        return cuts
    from freshet.job.kafka.cut_topic import address_of, check_cut_topic

    address = address_of(job_id, topics) if topics else KafkaAddress.parse(cuts.topic)
    check_cut_topic(address, cuts.topic_id, out, properties, say)
    return replace(cuts, topic=str(address))
