"""Checksums of the files of Flink's checkpoints and savepoints, which are taken once such a state is complete.

Flink's own files have none. Those of a savepoint lie in it, and move with it; those of a checkpoint lie beside it, as
Flink removes the folder of a checkpoint only when it holds nothing else, and may name files of the folder `shared`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from freshet.files.json_file import DamagedFileError
from freshet.files.listing import paths_in
from freshet.job.console import say
from freshet.state.checksums.files import FileChecksums, crc32c_of

METADATA = "_metadata"
_CHECKPOINT = "chk-"
_BESIDE = re.compile(r"checksums-(\d+)\.json")
_WRITTEN = "written_ns"  # when `_metadata` was
_MOVED = "moved_metadata"  # sizes and checksums of `_metadata` once its paths follow a move, and while they do
_NAMED = re.compile(rb"/((?:chk-\d+|shared|taskowned)/[\w.-]+)")
_POLL_S = 0.3
_MAGIC, _VERSION = bytes.fromhex("4960672d"), 6  # of Flink's `_metadata`, and the format of Flink 2.2
# That format ends with the kind of the state, written by Java: with the name of a constant of one of two enums.
_CONSTANTS = "FORWARD_BACKWARD", "FORWARD", "NO_SHARING", "NONE", "SUSPEND", "TERMINATE"
_ENDS = tuple(b"t" + len(name).to_bytes(2, "big") + name.encode() for name in _CONSTANTS)

Known = Mapping[str, tuple[int, int]]


def is_complete(state: Path) -> bool:
    """Return whether a checkpoint or savepoint has its `_metadata`, which Flink writes last."""
    try:
        return (state / METADATA).stat().st_size > 0
    except OSError:  # also what a running job removes while we look
        return False


def checksums_file(state: Path) -> Path:
    """Return the path of the checksums of a state's files."""
    if state.name.startswith(_CHECKPOINT):
        return state.with_name(f"checksums-{state.name.removeprefix(_CHECKPOINT)}.json")
    return state / "checksums.json"


def _base_of(state: Path) -> Path:
    """The folder that the names of the files are below."""
    return state.parent if state.name.startswith(_CHECKPOINT) else state


def record(state: Path, known: Known | None = None) -> FileChecksums:
    """Write the checksums of a state that is complete; `known` are those of files that never change.

    Raises: OSError where a file can't be read: Flink has removed the state, say.
    """
    base, metadata = _base_of(state), state / METADATA
    own, written = checksums_file(state), metadata.stat().st_mtime_ns
    names = {path.relative_to(base).as_posix() for path in state.iterdir() if path.is_file() and path != own}
    if base != state:
        named = {match[1].decode() for match in _NAMED.finditer(metadata.read_bytes())}
        names |= {name for name in named if (base / name).is_file()}
    checksums = FileChecksums.of(base, sorted(names), known, **{_WRITTEN: written})
    checksums.write(own)
    return checksums


def record_savepoint(savepoint: Path) -> None:
    """Write the checksums of a savepoint, unless they are there, or it lies where this machine can't look."""
    if not is_complete(savepoint) or checksums_file(savepoint).exists():
        return
    try:
        record(savepoint)
    except OSError as error:
        say(f"{savepoint}: its files have no checksums, so that a resume can't check them: {error}")


def recorded_states(folder: Path) -> list[Path]:
    """The checkpoints and savepoints below a folder that were complete once, by their checksums."""
    beside = [
        (file, _BESIDE.fullmatch(file.name)) for at in ("", "*/") for file in paths_in(folder, f"{at}checksums-*.json")
    ]
    found = [file.with_name(f"{_CHECKPOINT}{match[1]}") for file, match in beside if match]
    found += [file.parent for at in ("", "*/") for file in paths_in(folder, f"{at}savepoint-*/checksums.json")]
    return [state for state in found if state.is_dir()]


def written_ns(state: Path) -> int:
    """Return the time when a state was completed: as recorded, since a damaged or copied file has another time."""
    with suppress(DamagedFileError):
        found = FileChecksums.read(checksums_file(state))
        if found is not None and isinstance(found.extra.get(_WRITTEN), int):
            return int(found.extra[_WRITTEN])
    try:
        return (state / METADATA).stat().st_mtime_ns
    except OSError:
        return 0


def has_checksums(state: Path) -> bool:
    """Return whether its files have checksums; those of an earlier version have none."""
    return checksums_file(state).exists()


def damage_of(state: Path) -> str | None:
    """Describe the first damaged file of a state; None if all are intact, or if there are no checksums."""
    base, metadata = _base_of(state), (state / METADATA)
    try:
        checksums = FileChecksums.read(checksums_file(state))
    except DamagedFileError as error:
        return str(error)
    if checksums is None:
        return _cut(metadata)
    if checksums.extra.get(_MOVED):
        name = metadata.relative_to(base).as_posix()
        with suppress(OSError):
            if (now := _size_and_crc32c(metadata)) in checksums.extra[_MOVED]:
                checksums = replace(checksums, files={**checksums.files, name: (now[0], now[1])})
    return checksums.damage(base)


def _cut(metadata: Path) -> str | None:
    """Describe why `_metadata` is none of Flink's, or only the begin of one, as far as its two ends show it."""
    try:
        data = metadata.read_bytes()
    except OSError:
        data = b""
    if not data:
        return f"{metadata} is missing"
    if data[:4] != _MAGIC:
        return f"{metadata} is no checkpoint's or savepoint's (it begins with {data[:4].hex()}, not {_MAGIC.hex()})"
    if int.from_bytes(data[4:8], "big") != _VERSION:
        return None if len(data) > 8 else f"{metadata} is cut at {len(data):,} bytes"
    return None if data.endswith(_ENDS) else f"{metadata} is cut at {len(data):,} bytes: it lacks the end"


def _size_and_crc32c(path: Path) -> list[int]:
    data = path.read_bytes()
    return [len(data), crc32c_of(data)]


def expect_metadata(state: Path, data: bytes) -> None:
    """Have `_metadata` of a state be taken with these bytes, too: they are about to be written.

    Those that it has stay good: a process that is killed before it writes leaves them.
    """
    checksums = FileChecksums.read(checksums_file(state))
    if checksums is not None:
        now = _size_and_crc32c(state / METADATA)
        kept = [one for one in checksums.extra.get(_MOVED, []) if one == now]
        extra = {**checksums.extra, _MOVED: [*kept, [len(data), crc32c_of(data)]]}
        replace(checksums, extra=extra).write(checksums_file(state))


class CheckpointWatch:
    """Writes the checksums of a job's checkpoints while it runs, in a thread: a checkpoint waits for nothing.

    Files of the folder `shared` never change, and are read once.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: of the checkpoints of Flink's job."""
        self._folder = folder
        self.newest: Path | None = None  # of the complete ones
        self._known: dict[str, tuple[int, int]] = {}
        self._pool = ThreadPoolExecutor(1, "checksums")
        self._under_way: Future[None] | None = None
        self._next_s = 0.0

    def look(self) -> None:
        """Look for checkpoints that have become complete; call it again and again."""
        if time.monotonic() < self._next_s or (self._under_way is not None and not self._under_way.done()):
            return
        self._next_s = time.monotonic() + _POLL_S
        self._under_way = self._pool.submit(self._record)

    def close(self) -> None:
        """Record the remaining checkpoints."""
        self._pool.submit(self._record)
        self._pool.shutdown()

    def _record(self) -> None:
        states = [state for state in self._folder.glob(f"{_CHECKPOINT}*") if is_complete(state)]
        for state in sorted(states, key=lambda one: int(one.name.removeprefix(_CHECKPOINT))):
            self.newest = state
            if has_checksums(state):
                continue
            with suppress(OSError):  # Flink has removed it meanwhile
                found = record(state, self._known)
                self._known = {n: one for n, one in found.files.items() if not n.startswith(_CHECKPOINT)}
        for file in self._folder.glob("checksums-*.json"):
            match = _BESIDE.fullmatch(file.name)
            if match and not file.with_name(f"{_CHECKPOINT}{match[1]}").exists():
                file.unlink(missing_ok=True)
