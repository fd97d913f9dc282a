"""Takes a job up where it stopped: its settings at today's paths, and the state to go on from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from job.errors import UsageError
from job.flink.checkpoints import (
    NoCheckpointError,
    dir_of_job,
    find_state,
    follow_move,
    is_remote,
    local_folder,
    newest_of_job,
    prune,
)
from job.folder import run_file
from job.kafka.address import KafkaAddress
from job.kafka.topic_specs import TopicInput, from_recorded
from job.options.run_config import RunConfig
from job.run.file_source import FileSource
from job.run.outputs import new_job_id, outlet_settings, plan_outputs, refuse_large_records
from job.run.positions import JOB_FOLDER
from job.run.prepare import (
    CHUNKS,
    IMAGE_FOLDER,
    SAVED,
    Job,
    cut_log_settings,
    image_is_done,
    load_saved,
    make_image,
    save,
    say,
)
from job.run.processor import of_resumed_job
from job.run.sources import Sources, find_sources, load_sources
from job.run.topic_source import TopicSource
from operators.factory import Settings, load_plan
from operators.parser.files import EventFileError

# Options that decide the results of a job: name, and how the settings have it.
_FOR_LIFE = (
    "partitioner",
    "hybrid_threshold",
    "hdrf_lambda",
    "hdrf_epsilon",
    "undirected",
    "id_type",
    "id_bytes_max",
    "parts",
)

_JOB_ID = re.compile(r"[0-9a-f]{16}")


def resume(config: RunConfig, out: Path) -> tuple[RunConfig, Job]:
    """The job of `out` as it is to go on, and the options with those that it had before where none are given.

    What decides its results comes from when it began; folders may have moved since; `epoch_events` and `epoch_ms`
    hold from the first epoch on that was not cut before.
    Raises: UsageError for options, a model or events that are not those of the job, or when it still runs.
    """
    saved = load_saved(out)
    _refuse_running(out)
    config = _with_former_options(config, saved)
    plan = load_plan(str(config.model.absolute()))
    if plan.sha256 != saved["model_sha256"]:
        message = f"--model {config.model}: another model than the job in {out} was begun with; give that one"
        raise UsageError(message)
    former = Settings.from_dict(saved["settings"])
    _refuse_changes(config, former, saved["snapshot"], out)
    sources = _moved_sources(config, former, from_recorded(saved.get("topics", [])), out)
    job_id = former.job_id or new_job_id()
    outputs = plan_outputs(config, job_id, say)
    refuse_large_records(config, plan.out_width, former.id_kind, former.id_bytes_max, outputs)
    settings = replace(
        former,
        model=str(config.model.absolute()),
        out=str(out),
        image=str(out / IMAGE_FOLDER),
        chunks=str(out / JOB_FOLDER / CHUNKS),
        epoch_events=config.epoch_events,
        epoch_ms=config.epoch_ms,
        block_events=former.block_events or former.epoch_events,
        marker_interval_ms=max(1, int(config.checkpoint_interval_s * 1000)),
        publish_ms=config.publish_ms,
        **_cut_log(config, former, out, job_id),
        dead_letters=config.dead_letters_to,
        letter_bytes=outputs.letter_bytes,
        dead_letters_max=config.dead_letters_max_bytes,
        job_id=job_id,
        run=former.run + 1,
        outlet=outlet_settings(config, plan.sha256),
        processor=dict(of_resumed_job(config, former.processor)),
    )
    sources.save(Path(settings.chunks))
    save(settings, plan.sha256, saved["snapshot"], config, sources.topic_specs)
    run_file.update_run(out, model=settings.model, processor=settings.processor, **run_file.this_process())
    if not image_is_done(settings):
        if saved["snapshot"] and config.snapshot is None:
            message = f"--snapshot: the job in {out} was killed before it had taken {saved['snapshot']} in; give it"
            raise UsageError(message)
        make_image(settings, config)
    return config, Job(settings, sources, outputs)


def has_finished(config: RunConfig, out: Path) -> bool:
    """Whether there is nothing left to do."""
    return config.resume == "latest" and run_file.read_run(out).get("state") == run_file.FINISHED


def state_to_resume(config: RunConfig, out: Path, job_id: str) -> str | None:
    """The checkpoint or savepoint; a job that died before its first checkpoint begins again, by the same cuts.

    Raises: UsageError when it isn't there, is another job's, or lies where only Flink can look.
    """
    assert config.resume is not None
    if config.resume == "latest":
        return _latest(config, out, job_id)
    if is_remote(config.resume):
        return config.resume
    given = config.resume.removeprefix("file://")
    folder = Path(given) / job_id  # of a folder that jobs share, this one's
    try:
        found = find_state(str(folder) if folder.is_dir() else given, local_folder(config.checkpoint_dir, out))
    except NoCheckpointError as error:
        message = f"--resume {config.resume}: {error}"
        raise UsageError(message) from None
    owner = job_of_state(found)
    if owner not in (None, job_id):
        message = f"--resume {config.resume}: {found} is a state of job {owner}, the job in {out} is {job_id}"
        raise UsageError(message)
    follow_move(found)
    return str(found)


def _latest(config: RunConfig, out: Path, job_id: str) -> str | None:
    run = run_file.read_run(out)
    savepoint = str(run.get("savepoint") or "")
    own = dir_of_job(config.checkpoint_dir, job_id)
    if is_remote(own or ""):
        if run.get("state") == run_file.STOPPED and savepoint:
            return savepoint
        where = f"{own}/{run.get('job_id', 'JOB')}"
        message = f"--resume latest: can't look into {where}; give its newest checkpoint, --resume {where}/chk-N"
        raise UsageError(message)
    folder = local_folder(own, out)
    found = newest_of_job(folder, savepoint)
    if found is None:
        say("no checkpoint was complete: the job begins again, with the same epochs")
        return None
    follow_move(found)
    prune(folder, keep=found)
    return str(found)


def _refuse_running(out: Path) -> None:
    process = run_file.running_process(out)
    if process is not None:
        message = f"--out {out}: process {process} is still working on it; end it with `freshet stop {out}` first"
        raise UsageError(message)


def _with_former_options(config: RunConfig, saved: dict[str, Any]) -> RunConfig:
    """The options as given, else as the job had them."""
    if "runtime" in config.model_fields_set and config.runtime != saved["runtime"]:
        message = f"--runtime {config.runtime}: the job has its state in the runtime {saved['runtime']}; leave it out"
        raise UsageError(message)
    given = config.model_fields_set
    had = saved["options"].get("delivery", config.delivery)
    if saved["options"].get("embeddings_to") and "delivery" in given and config.delivery != had:
        message = f"--delivery {config.delivery}: the job has {had} for its life; leave --delivery out"
        raise UsageError(message)
    former = {name: value for name, value in saved["options"].items() if name not in given}
    return config.model_copy(update={**former, "runtime": saved["runtime"]})


def _refuse_changes(config: RunConfig, former: Settings, snapshot: str | None, out: Path) -> None:
    had = {**former.partitioner, "partitioner": former.partitioner["strategy"]}
    had |= {"id_type": former.id_kind, "parts": former.parts, "id_bytes_max": former.id_bytes_max}
    for name in _FOR_LIFE:
        given = getattr(config, name)
        if name in config.model_fields_set and given != had[name]:
            flag = "--" + name.replace("_", "-")
            message = f"{flag} {given}: the job in {out} has {had[name]} for its life; leave {flag} out"
            raise UsageError(message)
    if config.events_map and config.events_map != former.events_map:
        message = f"events-map: the job in {out} has another one for its life; leave it out"
        raise UsageError(message)
    if config.snapshot is not None and snapshot is None:
        message = f"--snapshot {config.snapshot}: the job in {out} began without one; leave --snapshot out"
        raise UsageError(message)
    if config.runtime == "flink" and config.parallelism > former.parts:
        message = f"--parallelism {config.parallelism}: the job in {out} has {former.parts} parts; give at most that"
        raise UsageError(message)


def _moved_sources(config: RunConfig, former: Settings, recorded: list[TopicInput], out: Path) -> Sources:
    """The job's sources, with the paths and brokers that they have now.

    Raises: UsageError when these aren't its files and topics.
    """
    was = load_sources(out / JOB_FOLDER / CHUNKS, former.sources, recorded, config.client_properties)
    try:
        found = find_sources(config.events)
        same = [file.source for file in found.files] == [file.index for file in was.files]
        same = same and all(map(FileSource.may_be, was.files, found.files))
    except EventFileError as error:
        raise UsageError(str(error)) from None
    if not same or tuple(found.topics) != former.topics:
        message = f"--events: not the files that the job in {out} reads ({', '.join(former.sources)}), or they changed"
        raise UsageError(message)
    files = [file.at(now.path) for file, now in zip(was.files, found.files, strict=True)]
    topics = [_moved_topic(config, topic, found.topics[topic.index], out) for topic in was.topics]
    return Sources(tuple(files), tuple(topics))


def _moved_topic(config: RunConfig, topic: TopicSource, given: KafkaAddress, out: Path) -> TopicSource:
    """A topic of the job, with the brokers that are to be asked for it now.

    Raises: UsageError for another topic, or options that can't be changed: their offsets are in the state.
    """
    if given.topic != topic.spec.topic:
        message = f"--events {given}: the job in {out} reads the topic {topic.spec.topic}; give that one"
        raise UsageError(message)
    if "start_from" in config.model_fields_set:
        message = f"--from {config.start_from}: the job in {out} goes on where it was; leave --from out"
        raise UsageError(message)
    if config.until is not None and topic.end is None:
        message = f"--until {config.until}: the job in {out} reads on for its life; leave --until out"
        raise UsageError(message)
    return topic.at(given)


def _cut_log(config: RunConfig, former: Settings, out: Path, job_id: str) -> dict[str, Any]:
    """Beside the checkpoints; where it was when they have been given another place."""
    found = cut_log_settings(config, out, job_id)
    beside, was = Path(found["cut_log"]), Path(former.cut_log)
    if not beside.exists() and was.is_relative_to(former.out):
        was = out / was.relative_to(former.out)
    return found if beside.exists() or not was.exists() else {**found, "cut_log": str(was)}


def job_of_state(state: Path) -> str | None:
    """The job that a checkpoint or savepoint belongs to, as far as the folders that it lies in tell."""
    if _JOB_ID.fullmatch(state.parent.parent.name):  # JOB/FLINK_JOB/chk-N or JOB/savepoints/savepoint-X
        return state.parent.parent.name
    for folder in state.parents:
        if (folder / JOB_FOLDER / SAVED).is_file():
            saved: dict[str, Any] = orjson.loads((folder / JOB_FOLDER / SAVED).read_bytes())
            return str(saved["settings"].get("job_id", "")) or None
    return None
