"""`job/job.json`: what a job was told when it began or was last resumed; a resume and an export start from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from job.errors import UsageError
from job.folder import layout
from job.folder.run_file import write_json
from job.kafka.topic_specs import TopicInput, as_recorded, from_recorded
from operators.factory import load_plan
from operators.settings import Settings

_RENAMED = {"epoch_events": "epoch_events_given"}  # options that had another name when the job was saved


@dataclass(frozen=True)
class SavedJob:
    """A job as its folder describes it; `options` are those that one need not repeat to go on with it."""

    settings: Settings
    model_sha256: str
    snapshot: str | None  # that it began from
    runtime: str
    topics: tuple[TopicInput, ...]
    options: Mapping[str, Any]

    def write(self, out: Path) -> None:
        """Write the file."""
        content = {
            "settings": self.settings.to_dict(),
            "model_sha256": self.model_sha256,
            "snapshot": self.snapshot,
            "runtime": self.runtime,
            "topics": as_recorded(self.topics),
            "options": dict(self.options),
        }
        write_json(out / layout.SAVED_JOB, content)

    @staticmethod
    def read(out: Path) -> SavedJob | None:
        """The job of an output folder, None where it holds none."""
        content = _content(out)
        if content is None:
            return None
        content["options"] = {_RENAMED.get(name, name): value for name, value in content["options"].items()}
        settings, topics = Settings.from_dict(content.pop("settings")), content.pop("topics", [])
        return SavedJob(settings, topics=tuple(from_recorded(topics)), **content)

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


def _content(out: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = orjson.loads((out / layout.SAVED_JOB).read_bytes())
    except FileNotFoundError:
        return None
    return content
