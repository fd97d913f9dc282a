"""`job/job.json`: the options of a job at its start or last resume; read by a resume and an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, as_kind, read_json, write_json
from freshet.files.whole import sync_folder
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.kafka.topic_specs import TopicInput, as_recorded
from freshet.job.options.flink_keys import resolve
from freshet.job.options.run_config import RunConfig
from freshet.operators.factory import load_plan
from freshet.operators.settings import Settings

# Options that had another name when the job was saved. Those of epochs then had the values that hold, not those given.
_RENAMED = {
    "epoch_events": "epoch_events_given",
    "epoch_ms": "epoch_ms_given",
    "latency_target_s": "latency_target_given",
}
_ADVICE = (
    "no other file has all of it: put it back from a copy, or start the job again in a new --out (from a snapshot of "
    "its graph, where there is one)"
)


@with_config(ConfigDict(extra="allow"))
class _Settings(TypedDict):
    """Fields of a job's settings that are read before the settings are known to be complete."""

    job_id: str
    parts: int
    sources: list[str]
    model: str


class _Content(TypedDict):
    settings: _Settings
    model_sha256: str
    snapshot: str | None
    runtime: str
    topics: NotRequired[list[dict[str, Any]]]
    options: dict[str, Any]
    former_options: NotRequired[dict[str, Any] | None]
    begun: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class SavedJob:
    """A job as its folder describes it.

    `options` are those that one need not repeat to go on with it, `begun` those that only its begin has used.
    `former_options` are the options of the attempt before, which hold if this one never starts.
    """

    settings: Settings
    model_sha256: str
    snapshot: str | None  # that it began from
    runtime: str
    topics: tuple[TopicInput, ...]
    options: Mapping[str, Any]
    begun: Mapping[str, Any] = field(default_factory=dict)
    former_options: Mapping[str, Any] | None = None

    def write(self, out: Path) -> None:
        """Write the file."""
        content = {
            "settings": self.settings.to_dict(),
            "model_sha256": self.model_sha256,
            "snapshot": self.snapshot,
            "runtime": self.runtime,
            "topics": as_recorded(self.topics),
            "options": dict(self.options),
            "former_options": None if self.former_options is None else dict(self.former_options),
            "begun": dict(self.begun),
        }
        write_json(out / layout.SAVED_JOB, content)
        sync_folder(out)

    @staticmethod
    def read(out: Path) -> SavedJob | None:
        """The job of an output folder, None where it holds none.

        Raises: DamagedFileError where its file is damaged.
        """
        content = _content(out)
        return None if content is None else _from_content(out / layout.SAVED_JOB, content)

    @property
    def flink(self) -> dict[str, str]:
        """Flink's own options of the job, without secrets that stood there as they are."""
        return dict(self.options.get("flink") or {})

    def run_fields(self) -> dict[str, Any]:
        """Return the fields of `run.json` that are constant for the job's life."""
        return {
            "name": layout.name_of_job(self.options.get("name"), Path(self.settings.out)),
            "model": self.settings.model,
            "model_sha256": self.model_sha256,
            "snapshot": self.snapshot,
            "sources": list(self.settings.sources),
            "topics": as_recorded(self.topics),
            "events_map": self.settings.parsing.events_map,
            "format": self.settings.parsing.message_format,
            "registry": self.settings.parsing.registry,
            "parts": self.settings.parts,
            "id_type": self.settings.id_kind,
            "cast_ids": self.settings.parsing.cast_ids,
            "id_bytes_max": self.settings.parsing.id_bytes_max,
            "ts_unit": self.settings.parsing.ts_unit,
            "undirected": self.settings.partitioning.undirected,
            "edge_ttl_ms": self.settings.partitioning.edge_ttl_ms,
            "ts_jump_ms": self.settings.partitioning.rules.jump_ms,
            "runtime": self.runtime,
            "processor": dict(self.settings.processor),
            **self._of_keys(),
        }

    def _of_keys(self) -> dict[str, str]:
        """The kind of the keys of edges, and the field that has them; nothing where edges have none."""
        kind = self.settings.partitioning.edge_keys
        return {"edge_keys": kind, "edge_key": self.settings.parsing.edge_key} if kind else {}

    def settings_at(self, out: Path, model: Path) -> Settings:
        """The settings at today's paths, for folders may have moved.

        Raises: UsageError for another model than the job's.
        """
        if load_plan(str(model)).sha256 != self.model_sha256:
            msg = f"--model {model}: not the model that the job in {out} began with; give that one"
            raise UsageError(msg)
        return replace(self.settings, model=str(model), **paths_of(out))

    def cut_log(self, out: Path, beside: Path) -> Path | None:
        """The folder of the cut log: `beside` today's checkpoints, else where it was; None where it is nowhere."""
        was = Path(self.settings.cuts.folder)
        places = [beside, was]
        if was.is_relative_to(self.settings.out):  # of a folder that was copied, the copy
            places.insert(1, out / was.relative_to(self.settings.out))
        return next((place for place in places if place.is_dir()), None)


def store_options(out: Path) -> dict[str, str] | None:
    """Return Flink's own options of the job in a folder, by which its store is reached.

    None where that can't be known here: without the job, or the variables of its secrets.
    """
    saved = SavedJob.read(out)
    try:
        return None if saved is None else resolve(saved.flink)
    except UsageError:
        return None


def paths_of(out: Path) -> dict[str, Any]:
    """The settings that name places in the output folder."""
    return {"out": str(out), "image": str(out / layout.IMAGE), "chunks": str(out / layout.CHUNKS)}


def job_of_state(state: Path) -> str | None:
    """The job that a checkpoint or savepoint belongs to, by the folders that it lies in."""
    if layout.is_job_id(state.parent.parent.name):  # JOB/FLINK_JOB/chk-N or JOB/savepoints/savepoint-X
        return state.parent.parent.name
    for folder in state.parents:
        if (content := _content(folder)) is not None:
            return str(content["settings"].get("job_id", "")) or None
    return None


def _from_content(path: Path, content: dict[str, Any]) -> SavedJob:
    try:
        settings = as_kind(Settings.from_dict(content["settings"]).to_dict(), Settings)
        topics = as_kind(content.get("topics", []), tuple[TopicInput, ...])
        options, former = _options(content["options"]), content.get("former_options")
        former = None if former is None else _options(former)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"without {error}" if isinstance(error, KeyError) else str(error)
        msg = f"{path}: damaged: {problem}; {_ADVICE}"
        raise DamagedFileError(msg) from None
    saved = content["model_sha256"], content["snapshot"], content["runtime"], topics, options
    return SavedJob(settings, *saved, begun=content.get("begun", {}), former_options=former)


def _options(content: Mapping[str, Any]) -> dict[str, Any]:
    options = {_RENAMED.get(name, name): value for name, value in content.items()}
    for name in options.keys() & RunConfig.model_fields.keys():
        _check_option(name, options[name])
    return options


def _check_option(name: str, value: Any) -> None:
    try:
        as_kind(value, _kept_kind(RunConfig.model_fields[name].annotation or object))
    except ValueError as error:
        msg = f"options.{name}: {error}"
        raise ValueError(msg) from None


def _kept_kind(kind: Any) -> Any:
    """Return the kind of a value that was read: 2147483648, where people write 2GiB."""
    if get_origin(kind) is Annotated:
        return _kept_kind(get_args(kind)[0])
    return reduce(or_, map(_kept_kind, get_args(kind))) if get_origin(kind) in (Union, UnionType) else kind


def _content(out: Path) -> dict[str, Any] | None:
    found = read_json(out / layout.SAVED_JOB, _Content, _ADVICE)
    return None if found is None else dict(found)
