"""Flips bits in one file of a state or snapshot that Freshet wrote, goes on from it, and looks at what comes out.

A damaged file may be refused, with an exit code and a line, or have no effect at all. Any other row is wrong.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from freshet.files.listing import paths_in
from freshet.job.flink.checkpoints import complete_states
from freshet.job.flink.state_files import has_checksums
from freshet.job.folder.run_file import read_run
from tests.support.runs.jobs import DEADLINE_S, FRESHET, Input, Job, Log, make_input, read_log

BITS = 3
_EPOCHS = ("--epoch-events", 20, "--epoch-ms", 0, "--parts", 2, "--processor", "any")
_SLOWLY = {"slow": {"parser": 1000}, "chunk": 20}  # so that the end comes in mid-stream
REFUSED = (2, 3)


@dataclass
class Flips:
    """What became of the flips."""

    refused: int = 0
    no_effect: list[str] = field(default_factory=list)
    """Files and places of bits without which all rows were right."""
    wrong: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For a line of JSON."""
        return {"refused": self.refused, "no_effect": len(self.no_effect), "wrong": self.wrong}


def flip(path: Path, draw: Random, bits: int = BITS) -> list[int]:
    """Flip so many bits of a file, which is not empty; their places."""
    data = bytearray(path.read_bytes())
    places = draw.sample(range(8 * len(data)), bits)
    for at in places:
        data[at // 8] ^= 1 << at % 8
    path.unlink()  # it may be a link
    path.write_bytes(data)
    return places


def files_below(*places: Path) -> list[Path]:
    """All files that are not empty, in order."""
    found = [one for place in places for one in ([place] if place.is_file() else place.rglob("*"))]
    return sorted(one for one in found if one.is_file() and not one.is_symlink() and one.stat().st_size)


def _drawn(files: list[Path], base: Path, draw: Random) -> Path:
    """One of the files: first a folder, so that those that hold few are not left out."""
    folders = sorted({file.relative_to(base).parts[:2] for file in files})
    chosen = draw.choice(folders)
    return draw.choice([file for file in files if file.relative_to(base).parts[:2] == chosen])


@dataclass(frozen=True)
class Drill:
    """A job that can be begun or gone on with again and again: `restore` puts back what it begins with."""

    job: Job
    places: Callable[[], Iterator[Path]]
    restore: Callable[[], None]
    options: tuple[object, ...]
    expected: Log

    def run(self, flips: int, draw: Random, tell: Callable[[str], None] = lambda _: None) -> Flips:
        """Flip bits of one file at a time."""
        found = Flips()
        for number in range(flips):
            self.restore()
            path = _drawn(files_below(*self.places()), self.job.out.parent, draw)
            places = flip(path, draw)
            ended = self.job.run(*self.options)
            name = f"{path.relative_to(self.job.out.parent)} {places}"
            how = f"{name}: exit {ended.code}: {ended.last_line}"
            if ended.code in REFUSED:
                found.refused += 1
            elif ended.code == 0 and _same(read_log(self.job.out), self.expected):
                found.no_effect.append(name)
            else:
                found.wrong.append(how)
            tell(f"{number + 1}: {how}")
        return found


def _same(found: Log, expected: Log) -> bool:
    if len(found.epoch) != len(expected.epoch):
        return False
    pairs = [(getattr(found, name), getattr(expected, name)) for name in ("epoch", "id", "deleted")]
    pairs.append((found.vector.view(np.uint32), expected.vector.view(np.uint32)))
    return all(np.array_equal(*pair) for pair in pairs)


def _kept(folder: Path, kept: Path) -> Callable[[], None]:
    """What puts a folder back as it is now."""
    shutil.copytree(folder, kept, symlinks=True)

    def restore() -> None:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder, symlinks=True)

    return restore


def _uninterrupted(given: Input, folder: Path, *options: object) -> Log:
    twin = Job(given, folder / "uninterrupted")
    try:
        twin.done("--runtime", "local", *options)
    finally:
        twin.end()
    return read_log(twin.out)


def local_drill(folder: Path, events: int = 1500) -> Drill:
    """A job of the local runtime that was killed: its state, and the log of its cuts."""
    given = make_input(folder, events, vertices=60, seed=3)
    expected = _uninterrupted(given, folder, *_EPOCHS)
    job = Job(given, folder / "out")
    job.start("--runtime", "local", *_EPOCHS, faults=_SLOWLY)
    job.until_epoch(15)
    job.kill()
    restore = _kept(job.out, folder / "kept")

    def places() -> Iterator[Path]:
        yield from (job.out / "state", job.out / "checkpoints")

    return Drill(job, places, restore, ("--resume", "latest"), expected)


def flink_drill(folder: Path, *, savepoint: bool, checksums: bool = True, events: int = 1500) -> Drill:
    """A job on Flink that was stopped with a savepoint, or killed after a checkpoint.

    Not `checksums`: those of files are removed, so that the ones in the state are asked.
    """
    given = make_input(folder, events, vertices=60, seed=3)
    expected = _uninterrupted(given, folder, *_EPOCHS)
    job = Job(given, folder / "out")
    job.start(*_EPOCHS, "--checkpoint-interval", "500ms", faults=_SLOWLY)
    job.until_epoch(15)
    checkpoints = job.out / "checkpoints"
    if savepoint:
        stopped = job.stop()
        assert stopped.code == 0, stopped.errors
        job.wait()
    else:
        job.until(lambda: len(paths_in(checkpoints, "*/checksums-*.json")) > 1)
        job.kill()
        for state in complete_states(checkpoints):
            if not has_checksums(state):  # killed before it had any
                shutil.rmtree(state)
    if not checksums:
        for file in checkpoints.rglob("checksums*.json"):
            file.unlink()
    restore = _kept(job.out, folder / "kept")

    def places() -> Iterator[Path]:
        if savepoint:
            yield Path(read_run(job.out)["savepoint"])
            return
        yield max(checkpoints.glob("*/chk-*/_metadata"), key=lambda one: int(one.parent.name[4:])).parent
        yield from checkpoints.glob("*/shared")

    return Drill(job, places, restore, ("--resume", "latest", "--restarts", 1), expected)


def embed_drill(folder: Path, events: int = 400) -> Drill:
    """A job that begins at a snapshot that `freshet embed` wrote."""
    given = make_input(folder, events, vertices=200, seed=3, snapshot=True)
    made = folder / "embedded"
    command: list[Any] = [FRESHET, "embed", "--model", given.model, "--snapshot", given.snapshot]
    command += ["--out", made, "--parts", "2"]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    begun = Input(given.model, given.events, given.count, made)
    expected = _uninterrupted(begun, folder, *_EPOCHS)
    job = Job(begun, folder / "out")
    again = _kept(made, folder / "kept")

    def restore() -> None:
        again()
        shutil.rmtree(job.out, ignore_errors=True)

    return Drill(job, lambda: iter([made]), restore, ("--runtime", "local", *_EPOCHS), expected)
