"""The third step of a new job: its settings, in the record that its folder will hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from freshet.gnn.any_plan import names_of_returned, widths_of
from freshet.job.folder import layout
from freshet.job.folder.job_file import SavedJob, paths_of
from freshet.job.options.flink_keys import without_secrets
from freshet.job.options.marks import Holds, Option
from freshet.job.options.run_config import RunConfig, that_hold, told, told_again
from freshet.job.run.outputs import Outputs, outlet_settings, refuse_large_records
from freshet.job.run.prepare import cut_log
from freshet.job.run.prepare.ends import Ends
from freshet.job.run.prepare.model import PreparedModel
from freshet.job.run.processor import of_new_job
from freshet.job.uris import is_remote, local_path
from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.graph.rules import graph_rules
from freshet.operators.parser.config import LetterConfig, ParserConfig
from freshet.operators.settings import Settings, TailConfig
from freshet.partitioner.config import PartitionerConfig
from freshet.state.seed import new_seed

# Epochs in a block of the local runtime, which hands on and commits by blocks: 17% more events/s than with one, and
# three times the latency where the input never pauses.
_LOCAL_EPOCHS = 8
BEGUN = "start_from", "ignore_positions"  # options that only the begin of a job uses


def new_job(config: RunConfig, model: PreparedModel, ends: Ends, job_id: str, out: Path) -> SavedJob:
    """Return the record of a new job.

    Raises: UsageError where the options do not fit the snapshot's state, the processor or the topic of embeddings.
    """
    block_events = config.epoch_events * (_LOCAL_EPOCHS if config.runtime == "local" else 1)
    processor = dict(of_new_job(config.processor, model.plan))
    rules = graph_rules(model.plan, undirected=config.undirected)
    placed = told(config, PartitionerConfig) | {"id_kind": ends.id_kind}
    wanted = PartitionerConfig.of(rules, **placed, hash_seed=new_seed())
    wanted = replace(wanted, ts_jump_ms=wanted.rules.jump_ms)
    settings = Settings(
        model=str(model.folder),
        **paths_of(out),
        parts=model.parts,
        partitioning=_placed(model, wanted, processor),
        parsing=ParserConfig(**told(config, ParserConfig) | {"block_events": block_events}),
        sealing=SealingConfig(**told(config, SealingConfig)),
        cuts=CutLogConfig(**told(config, CutLogConfig)),
        letters=LetterConfig(**told(config, LetterConfig)),
        tail=TailConfig(**told(config, TailConfig) | {"begins_empty": model.start is None}),
        sources=ends.found.names,
        returned=names_of_returned(model.plan),
        topics=tuple(ends.found.topics),
        processor=processor,
    )
    settings = settings_of_run(settings, config, out, job_id, ends.outputs, model.plan.sha256)
    refuse_large_records(settings, ends.outputs, widths_of(model.plan))
    cuts = cut_log.of_new_job(settings.cuts, config.topics, config.client_properties, job_id)
    settings = replace(settings, cuts=cuts)
    snapshot = None if model.start is None else str(model.start.graph.folder.absolute())
    topics = ends.sources.topic_specs
    begun = {name: getattr(config, name) for name in BEGUN}
    return SavedJob(settings, model.plan.sha256, snapshot, config.runtime, topics, kept_options(config), begun)


def _placed(model: PreparedModel, wanted: PartitionerConfig, processor: dict[str, str]) -> PartitionerConfig:
    """Return how the graph is placed; of a snapshot with an image, as there.

    Raises: UsageError where the options do not fit that.
    """
    made = None if model.start is None else model.start.made
    if made is None:
        return wanted
    made.check(model.parts, wanted, processor)
    return replace(made.partitioning, ts_jump_ms=wanted.ts_jump_ms)


def settings_of_run(
    settings: Settings, config: RunConfig, out: Path, job_id: str, outputs: Outputs, model_sha256: str
) -> Settings:
    """Return a job's settings with what each of its runs may change."""
    settings = replace(settings, job_id=job_id, outlet=outlet_settings(config, model_sha256, settings.outlet))
    parts = {name: replace(part, **told_again(config, type(part))) for name, part in settings.in_parts().items()}
    target = layout.dead_letters_to(config.dead_letters, out)
    where = layout.checkpoint_dir_of_job(config.checkpoint_dir, job_id)
    return replace(
        settings,
        **parts
        | {
            "cuts": cut_log.in_this_run(parts["cuts"], where, out, by_flink=config.runtime == "flink"),
            "letters": replace(parts["letters"], target=target, record_bytes=outputs.letter_bytes),
        },
    )


def kept_options(config: RunConfig) -> dict[str, Any]:
    """Return the options that need not be repeated to go on with the job; a path as one that holds anywhere."""
    kept = {name: _kept(getattr(config, name), mark) for name, mark in that_hold(Holds.KEPT)}
    return kept | {"flink": without_secrets(config.flink)}


def _kept(value: Any, mark: Option) -> Any:
    value = list(value) if isinstance(value, tuple) else value  # as JSON has it
    return str(local_path(value)) if mark.is_place and value is not None and not is_remote(value) else value
