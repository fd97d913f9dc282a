"""A folder with the graph of a job at an epoch, from which a reader goes on: images, and how far they cover the input.

`live.json` says which of the folders beside it has the images, and is replaced once these are whole and durable.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.files.whole import sync_tree
from freshet.job.errors import UsageError
from freshet.job.results.graph_at import Reached
from freshet.operators.live_graph import LiveState

FILE = "live.json"
_VERSION = 1
_IMAGES = "graph-"
_ADVICE = "save the graph again"


@with_config(ConfigDict(extra="forbid"))
class _Place(TypedDict):
    source: str
    partition: int
    next_offset: int
    rest: int


@with_config(ConfigDict(extra="forbid"))
class _Saved(TypedDict):
    version: int
    job: str
    epoch: int
    images: str
    reached: list[_Place]


class SavedGraph(NamedTuple):
    """A graph that was saved: the job's id, how far it covers the input, and its images."""

    job: str
    reached: Reached
    images: Path


def is_saved(folder: Path) -> bool:
    """Return whether a folder has a graph that was saved."""
    return (folder / FILE).is_file()


def save(folder: Path, job: str, live: LiveState, reached: Reached) -> None:
    """Write a graph into a folder, in place of one that was saved there; the former one stays until this one is whole.

    Raises: UsageError for a folder that has other files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = {item.name for item in folder.iterdir()}
    if other := sorted(name for name in there if name != FILE and not name.startswith((_IMAGES, f".{FILE}."))):
        msg = f"{folder}: expected a folder that is new, empty, or has a saved graph; it has {', '.join(other[:3])}"
        raise UsageError(msg)
    images = folder / f"{_IMAGES}{reached.epoch}-{secrets.token_hex(4)}"
    images.mkdir()
    try:
        live.write(images)
        sync_tree(images)
        places = sorted(reached.offsets)
        rows = [
            _Place(source=one, partition=k, next_offset=reached.offsets[one, k], rest=reached.rests.get((one, k), 0))
            for one, k in places
        ]
        saved = _Saved(version=_VERSION, job=job, epoch=reached.epoch, images=images.name, reached=rows)
        write_json(folder / FILE, dict(saved))
    except BaseException:
        shutil.rmtree(images, ignore_errors=True)
        raise
    for former in folder.glob(f"{_IMAGES}*"):
        if former != images:
            shutil.rmtree(former, ignore_errors=True)


def read_saved(folder: Path, job: str) -> SavedGraph:
    """Read what a folder says that a graph was saved in.

    Raises: UsageError for the graph of another job, or another version; DamagedFileError.
    """
    found = read_json(folder / FILE, _Saved, _ADVICE)
    if found is None:
        msg = f"{folder}: expected a folder of LiveGraph.save, there is no {FILE}"
        raise UsageError(msg)
    if found["version"] != _VERSION:
        msg = f"{folder / FILE}: got version {found['version']}, this Freshet reads {_VERSION}; {_ADVICE}"
        raise UsageError(msg)
    if found["job"] != job:
        msg = f"{folder}: has the graph of job {found['job']}, expected one of job {job}"
        raise UsageError(msg)
    images = folder / found["images"]
    if not found["images"].startswith(_IMAGES) or Path(found["images"]).name != found["images"]:
        msg = f"{folder / FILE}: damaged: images is {found['images']!r}; {_ADVICE}"
        raise DamagedFileError(msg)
    places = {(one["source"], one["partition"]): one for one in found["reached"]}
    offsets = {place: one["next_offset"] for place, one in places.items()}
    rests = {place: one["rest"] for place, one in places.items()}
    return SavedGraph(found["job"], Reached(found["epoch"], offsets, rests), images)
