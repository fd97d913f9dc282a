"""Takes a job up where it stopped: its settings at today's paths, and the state to go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from freshet.gnn.any_plan import widths_of
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.pipeline import division_of, groups_max
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.address import KafkaAddress, is_kafka
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.topic_specs import TopicInput, as_recorded
from freshet.job.lifecycle.job_state import state_of
from freshet.job.lifecycle.summary import complete_epoch
from freshet.job.options.marks import Holds
from freshet.job.options.output_options import ASKED, EAGER
from freshet.job.options.run_config import RunConfig, that_hold, value_in_words, with_value, written
from freshet.job.options.runtime_options import NEWEST
from freshet.job.run.job_states import JobStates
from freshet.job.run.model import Start
from freshet.job.run.new_job import Job, make_image
from freshet.job.run.outputs import claim_topics, new_job_id, plan_outputs, refuse_large_records, seen_topics
from freshet.job.run.processor import of_resumed_job
from freshet.job.run.settings import BEGUN, cuts_of_resumed_job, kept_options, settings_of_run
from freshet.job.run.source_kinds import FileSource, TopicSource
from freshet.job.run.sources import FoundSources, Sources, find_sources, load_sources
from freshet.operators.factory import plan_of
from freshet.operators.settings import Settings

_OF_THE_CLIENT = {"max_rejected"}  # what the process that watches a job does, and not the job


def resume(config: RunConfig, out: Path, *, is_over: bool = False) -> tuple[RunConfig, Job]:
    """The job of `out` as it is to go on, and the options with those that it had before where none are given.

    What decides its results comes from when it began; folders may have moved since; how epochs are cut holds
    from the first epoch on that was not cut before. `is_over`: nothing is left to do, so that nothing is written.
    Raises: UsageError for options, a model or events that are not those of the job, or when it still runs.
    """
    saved = SavedJob.read(out)
    if saved is None:
        msg = f"--resume: {out} holds no job ({layout.SAVED_JOB}); start one without --resume, in a new folder"
        raise UsageError(msg)
    _refuse_running(out)
    saved = _with_used_options(saved, out)
    config = _with_former_options(config, saved)
    former = saved.settings_at(out, config.model.absolute())
    _refuse_changes(config, former, saved, out)
    await_brokers(config.output_topics.items(), config.client_properties)  # the options may be those that it had
    sources = _moved_sources(config, former, saved.topics, out)
    job_id = former.job_id or new_job_id()
    plan = plan_of(former)
    outputs = plan_outputs(config, job_id, say, plan)
    if outputs.topics and not is_over:
        had = saved.options.get("embeddings_to")
        goes_on = had is not None and KafkaAddress.parse(had).topic == config.output_topics["--embeddings-to"].topic
        has_all = goes_on and (saved.snapshot is None or config.embeddings_from_start)
        claim = {"has_all": has_all, "goes_on": goes_on, "take": config.take_topic}
        outputs = claim_topics(outputs, job_id, plan, config.client_properties, seen_topics(out), **claim)
    if config.runtime == "flink":
        _refuse_subtasks(*config.processes, former.parts, len(plan.layers), out)
    block_events = former.parsing.block_events or former.sealing.epoch_events
    former = replace(former, parsing=replace(former.parsing, block_events=block_events))
    settings = settings_of_run(former, config, out, job_id, outputs, saved.model_sha256)
    refuse_large_records(settings, outputs, widths_of(plan))
    if (folder := saved.cut_log(out, beside=Path(settings.cuts.folder))) is not None:  # where it was, if not there
        settings = replace(settings, cuts=replace(settings.cuts, folder=str(folder)))
    cuts = cuts_of_resumed_job(settings.cuts, config.topics, config.client_properties, job_id, out)
    settings = replace(settings, cuts=cuts)
    settings = replace(
        settings, run=former.run + 1, processor=dict(of_resumed_job(config.processor, former.processor, plan))
    )
    sources.save(out)
    topics, options = sources.topic_specs, kept_options(config)
    replace(saved, settings=settings, topics=topics, options=options, former_options=saved.options).write(out)
    now = {"model": settings.model, "processor": settings.processor, "topics": as_recorded(topics)}
    now |= {"name": layout.name_of_job(config.name, out), "registry": settings.parsing.registry}
    run_file.record_resume(out, **now)
    if not (out / layout.IMAGE_DONE).exists():
        if saved.snapshot and config.snapshot is None:
            msg = f"--snapshot: the job in {out} was killed before it had taken {saved.snapshot} in; give it"
            raise UsageError(msg)
        folder, parsing, rules = config.snapshot, settings.parsing, settings.partitioning.rules
        start = None
        if folder is not None:
            of = folder, config.model, plan, parsing.id_bytes_max, rules
            start = Start.open(*of, cast_ids=parsing.cast_ids, ts_unit=parsing.ts_unit)
            start = start.without_image() if former.inner_widths else start
        make_image(settings, start, ignore_positions=config.ignore_positions)
    return config, Job(settings, sources, outputs)


def attach(config: RunConfig, out: Path) -> tuple[RunConfig, Job]:
    """Return the options and the parts of a job that runs, as far as they are needed to watch it.

    Raises: UsageError for options that differ from those that it runs with, or another model.
    """
    saved = SavedJob.read(out)
    if saved is None:
        msg = f"--resume: {out} holds no job ({layout.SAVED_JOB}), though one runs: put the file back from a copy"
        raise UsageError(msg)
    kept = kept_options(config)
    _refuse_other_options({name: kept[name] for name in kept.keys() & config.model_fields_set}, saved, out)
    config = _with_former_options(config, saved)
    former = saved.settings_at(out, config.model.absolute())
    _refuse_changes(config, former, saved, out)
    _refuse_other_events(config.events, saved, out)
    return config, Job(former, load_sources(former, saved.topics, config.client_properties))


def has_finished(named: str | None, out: Path) -> bool:
    """Return whether the job has taken in all of the input that it was to read, for `--resume` as given."""
    return named in NEWEST and run_file.has_finished(run_file.read_run(out))


def nothing_left(config: RunConfig, out: Path) -> bool:
    """Return whether a job has finished, and none of its topics has had messages since.

    Raises: UsageError as `resume`, where it can't go on.
    """
    if not has_finished(config.resume, out):
        return False
    if (saved := SavedJob.read(out)) is None or not saved.topics:
        return True
    await_brokers(config.topics, config.client_properties)
    former = saved.settings_at(out, config.model.absolute())
    now = _moved_sources(config, former, saved.topics, out).topics
    return all(topic.end == was.end for topic, was in zip(now, saved.topics, strict=True))


def state_to_resume(named: str, states: JobStates) -> str | None:
    """Return the state that `--resume` names; a job without a checkpoint begins again, by the same cuts.

    Raises: UsageError when it isn't there, is another job's, or lies where only Flink can look.
    """
    if named not in NEWEST:
        return states.named(named)
    found = states.latest()
    if found is None:
        say("no checkpoint was complete: the job begins again, with the same epochs")
    return found


def _refuse_running(out: Path) -> None:
    worker = state_of(out, has_lock=True).worker
    if worker is not None:
        msg = f"--out {out}: {worker} is still working on it; end it with `freshet stop {out}` first"
        raise UsageError(msg)


def _with_used_options(saved: SavedJob, out: Path) -> SavedJob:
    """Return the job with the options of the last attempt that came to something."""
    if saved.former_options is None:
        return saved
    unused = run_file.came_to_nothing(run_file.read_run(out), saved.settings.run, complete_epoch(out))
    return replace(saved, options=saved.former_options) if unused else saved


def _with_former_options(config: RunConfig, saved: SavedJob) -> RunConfig:
    """Return the options as given, else as the job had them.

    Raises: UsageError for those that no resume may change.
    """
    if "runtime" in config.model_fields_set and config.runtime != saved.runtime:
        msg = f"--runtime {config.runtime}: the job has its state in the runtime {saved.runtime}; leave it out"
        raise UsageError(msg)
    given = config.model_fields_set
    had = saved.options.get("delivery", config.delivery)
    if saved.options.get("embeddings_to") and "delivery" in given and config.delivery != had:
        msg = f"--delivery {config.delivery}: the job has {had} for its life; leave --delivery out"
        raise UsageError(msg)
    if config.embeddings_from_start and not saved.options.get("embeddings_from_start"):
        msg = (
            "embeddings-from-start: the job began without it, and its topic may have newer rows; leave it out, or "
            "start a new job on a new topic"
        )
        raise UsageError(msg)
    former = {name: value for name, value in saved.options.items() if name not in given}
    if given & {"parallelism", "layer_parallelism"}:
        former.pop("readers", None)  # were for other processes, as the following are
        former.pop("layer_parallelism", None)
    if "layer_parallelism" in given:
        former = {name: value for name, value in former.items() if name not in ("parallelism", "pipeline")}
    if "parallelism" in given and former.get("pipeline"):
        subtasks, left = divmod(config.parallelism, former["pipeline"])
        if left or subtasks > saved.settings.parts:
            del former["pipeline"]  # was for other processes
    config = config.model_copy(update={**former, "runtime": saved.runtime})
    if msg := config.epochs_that_disagree():
        raise UsageError(msg)
    return config


def options_for_life(settings: Settings) -> dict[str, Any]:
    """The options that a job has for its life, as its settings have them."""
    had: dict[str, Any] = {"parts": settings.parts}
    for part in settings.in_parts().values():
        had |= {field.name: getattr(part, field.name) for field in fields(part)}
    had["embeddings"] = ASKED if settings.inner_widths else EAGER
    had["ts_jump_ms"] = settings.partitioning.rules.jump_ms
    for name in ("message_format", "edge_key"):
        had[name] = had[name] or None
    return {name: had[name] for name, _ in that_hold(Holds.FOR_LIFE)}


def _refuse_changes(config: RunConfig, former: Settings, saved: SavedJob, out: Path) -> None:
    """Refuse options that a job has for its life, where they are given and differ.

    Raises: UsageError.
    """
    had = options_for_life(former)
    for name, _ in that_hold(Holds.FOR_LIFE):
        given, option = getattr(config, name), written(name)
        if name not in config.model_fields_set or given == had[name]:
            continue
        given, was = (value_in_words(name, value) for value in (given, had[name]))
        msg = f"{option} {given}: fixed at {was} when the job in {out} was created; omit {option}"
        if isinstance(given, dict | tuple) and given:  # long
            msg = f"{option}: fixed at another value when the job in {out} was created; omit it"
        raise UsageError(msg)
    for name in config.model_fields_set & set(BEGUN):
        if (given := getattr(config, name)) != saved.begun.get(name):
            msg = f"{with_value(name, given)}: the job in {out} goes on where it was; leave {written(name)} out"
            raise UsageError(msg)
    if config.snapshot is not None:
        _refuse_other_snapshot(config.snapshot, saved.snapshot, out)


def _refuse_other_options(given: Mapping[str, Any], saved: SavedJob, out: Path) -> None:
    """Refuse options that a job takes over when it is resumed, not while it runs."""
    for name in given.keys() & saved.options.keys() - _OF_THE_CLIENT:
        if given[name] != (had := saved.options[name]):
            if isinstance(had, dict):  # long, and secrets may stand in it
                msg = f"{written(name)}: the job in {out} runs with others; leave it out, or stop the job and resume it"
                raise UsageError(msg)
            runs = "without it" if had is None else f"with {_shown(had)}"
            msg = (
                f"{written(name)} {_shown(given[name])}: the job in {out} runs {runs}; leave {written(name)} out, or "
                f"stop the job (freshet stop {out}) and give it to --resume"
            )
            raise UsageError(msg)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _refuse_other_events(events: Sequence[str], saved: SavedJob, out: Path) -> None:
    """Refuse topics that the job does not read; of files, those that it began with are all that it reads."""
    given = sorted(KafkaAddress.parse(one).topic for one in events if is_kafka(one))
    had = sorted(one.topic for one in saved.topics)
    if given != had:
        reads = ", ".join(had) or "files only"
        msg = f"--events: the job in {out}, which runs, reads {'the topics ' if had else ''}{reads}; give those"
        raise UsageError(msg)


def _refuse_other_snapshot(given: Path, had: str | None, out: Path) -> None:
    """Refuse another snapshot than that which a job began from; one that is not there any more may have moved."""
    if had is None:
        msg = f"--snapshot {given}: the job in {out} began without one; leave --snapshot out"
        raise UsageError(msg)
    if given.resolve() != Path(had).resolve() and Path(had).exists():
        msg = f"--snapshot {given}: the job in {out} began from {had}; give that one, or leave --snapshot out"
        raise UsageError(msg)


def _refuse_subtasks(
    parallelism: int, pipeline: int | None, by_layer: Sequence[int] | None, parts: int, layers: int, out: Path
) -> None:
    """Refuse more subtasks of a layer than the job has parts."""
    groups = division_of(parallelism, pipeline, by_layer, layers, parts).groups
    if by_layer is not None:
        return
    if parallelism // groups > parts:
        most = f"{parts} parts" if parts > 1 else "1 part"
        msg = (
            f"--parallelism {parallelism}: the job in {out} has {most}, and each layer would have "
            f"{parallelism // groups} subtasks; give at most {parts}, or a multiple of it whose --pipeline "
            f"is up to {groups_max(layers)}"
        )
        raise UsageError(msg)


def _moved_sources(config: RunConfig, former: Settings, recorded: Sequence[TopicInput], out: Path) -> Sources:
    """The job's sources, with the paths and brokers that they have now.

    Raises: UsageError when these aren't its files and topics; EventFileError.
    """
    was, found = load_sources(former, recorded, config.client_properties), find_sources(config.events)
    same = [file.source for file in found.files] == [file.index for file in was.files]
    same = same and all(map(FileSource.may_be, was.files, found.files))
    if not same and (since := _come_since(was, found)):
        msg = (
            f"--events: {', '.join(since)}; the job in {out} reads what was there when it began. Go on by `freshet "
            f"export --out S {out}`, then `freshet run --snapshot S` with the same --events and a new --out: it begins "
            "where this job ended"
        )
        raise UsageError(msg)
    if not same or tuple(found.topics) != former.topics:
        msg = (
            f"--events: not the files that the job in {out} reads ({', '.join(former.sources)}), or they changed; give "
            "those, as they were, or start a new job with a new --out"
        )
        raise UsageError(msg)
    files = [file.at(now.path) for file, now in zip(was.files, found.files, strict=True)]
    until, is_read = config.until, has_finished(config.resume, out)
    topics = [_moved_topic(topic, found.topics[topic.index], until, out, is_read=is_read) for topic in was.topics]
    return Sources(tuple(files), tuple(topics))


def _come_since(was: Sources, found: FoundSources) -> list[str]:
    """Describe the additions to the files since the job began; empty if one of those that it read is another."""
    left, since = list(found.files), []
    for file in was.files:
        now = next((one for one in left if Path(one.name).name == Path(file.name).name), None)
        if now is None:
            return []
        left.remove(now)
        if not file.may_be(now):
            records = FileSource.plan(now, file.first).records
            if records <= file.records:
                return []
            since.append(f"{now.name} has {records:,} records now and had {file.records:,}")
    return since + [f"{file.name} is new" for file in left]


def _moved_topic(
    topic: TopicSource, given: KafkaAddress, until: str | None, out: Path, *, is_read: bool
) -> TopicSource:
    """A topic of the job, with the brokers that are to be asked for it now; `is_read`: the job has read it to its end.

    Raises: UsageError for another topic, or options that can't be changed: their offsets are in the state.
    """
    if given.topic != topic.spec.topic:
        msg = f"--events {given}: the job in {out} reads the topic {topic.spec.topic}; give that one"
        raise UsageError(msg)
    if until is not None and topic.end is None:
        msg = f"--until {until}: the job in {out} was started without --until, which cannot be added on resume; omit it"
        raise UsageError(msg)
    from freshet.job.kafka.read_topics import resumed_topic

    ended = layout.topic_ended(out, topic.index).exists()
    now = replace(topic, spec=resumed_topic(topic.spec, given, topic.properties, out, ended, is_read))
    if ended and now.end and (more := sum(now.ends_now().values()) - sum(now.end.values())) > 0:
        if is_read:
            msg = (
                f"--events {given}: {more:,} messages came since the job in {out} ended, and it kept no state to go on "
                f"from (as with --detach, or by an earlier version). Go on by `freshet export --out S {out}`, then "
                "`freshet run --snapshot S` with the same --events and a new --out: it begins where this job ended"
            )
            raise UsageError(msg)
        say(f"{given}: it was read to its end before the stop; {more:,} messages that came since are left out")
    return now
