"""The folder that `freshet embed` writes: its lock, its recorded options, and its end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freshet.files.json_file import read_json, write_json
from freshet.files.owner_only import close_to_others
from freshet.files.whole import remove_all_left_behind, sync_folder, sync_tree
from freshet.job.errors import UsageError
from freshet.job.folder import layout, lock
from freshet.operators.embed.embedding import take_over
from freshet.operators.embed.files import full_disk
from freshet.operators.snapshot.reader import OF_EMBED

WORK = ".embed"  # all that is needed until it is done
TOLD = "told.json"
SNAPSHOT = "snapshot.json"
_ADVICE = "remove the folder and embed again"
_GRAPH = ("vertices.parquet", "edges.parquet")


@contextmanager
def taken(out: Path) -> Iterator[Path]:
    """Take the folder for this process; gives the folder to work in.

    Raises: UsageError when it is finished, another process works on it, or it holds something else.
    """
    with lock.taken(out, "freshet embed"):
        if is_finished(out):
            msg = f"--out {out}: already holds a finished embedding; give a new folder"
            raise UsageError(msg)
        work = out / WORK
        if not work.is_dir() and not lock.is_empty(out):
            msg = f"--out {out}: not empty; give a new folder, or that of an embedding that was interrupted"
            raise UsageError(msg)
        close_to_others(out)
        work.mkdir(exist_ok=True)
        remove_all_left_behind(out)
        yield work


def is_finished(out: Path) -> bool:
    """Return whether a finished embedding is in the folder.

    Raises: DamagedFileError if the file that says so is damaged.
    """
    info = read_json(out / SNAPSHOT, dict[str, Any], "put it back from a copy, or embed again into a new folder")
    return info is not None and OF_EMBED in info


def told_before(out: Path) -> dict[str, Any]:
    """Return the options of an attempt that is to be continued; empty if there is none."""
    return read_json(out / WORK / TOLD, dict[str, Any], _ADVICE) or {}


def keep_told(work: Path, told: Mapping[str, Any]) -> bool:
    """Record the options of this embedding; return whether an earlier attempt with the same ones can be continued.

    Raises: UsageError that names an option with another value in that attempt.
    """
    path = work / TOLD
    before = read_json(path, dict[str, Any], _ADVICE)
    if before is None:
        try:
            write_json(path, told)
        except OSError as error:
            raise full_disk(path, error) from None
        return False
    had = {_bare(name): value for name, value in before.items()}
    for name, value in told.items():
        if had.get(_bare(name)) != value:
            msg = (
                f"{work.parent}: an embedding is under way there with {name} {had.get(_bare(name))!r}, this one has "
                f"{value!r}; give what it began with, or another folder"
            )
            raise UsageError(msg)
    return True


def _bare(option: str) -> str:
    """An option's name, whether it is a flag or, as it may be since then, a key of the --config file."""
    return option.removeprefix("--")


def finish(out: Path, snapshot: Path, info: Mapping[str, Any], also: Sequence[str] = ()) -> None:
    """Give the finished files their places; `snapshot.json`, which says that all is there, comes last.

    `also`: what there is beside the embeddings.
    """
    work = out / WORK
    take_over(snapshot, work)
    for name in also:
        try:
            sync_tree(work / name)
        except OSError as error:
            raise full_disk(work / name, error) from None
    sync_folder(work / layout.EMBEDDINGS)  # with the folders of kinds in it
    for name in (layout.EMBEDDINGS, *also):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (*_GRAPH, layout.EMBEDDINGS, *also):
        os.replace(work / name, out / name)
    sync_folder(out)
    try:
        write_json(out / SNAPSHOT, info)
    except OSError as error:
        raise full_disk(out / SNAPSHOT, error) from None
    shutil.rmtree(work, ignore_errors=True)


def take_back(out: Path, names: Sequence[str]) -> None:
    """Have what an attempt that was killed in `finish` had given its place in the work folder again."""
    for name in names:
        if (out / name).exists() and not (out / WORK / name).exists():
            os.replace(out / name, out / WORK / name)


def used_bytes(work: Path) -> int:
    """Return the bytes on disk of an earlier attempt."""
    return sum(file.stat().st_blocks * 512 for file in work.rglob("*") if file.is_file())
