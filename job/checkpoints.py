"""Finds the state that a job can resume from: Flink's retained checkpoints and savepoints."""

from __future__ import annotations

from pathlib import Path


class NoCheckpointError(FileNotFoundError):
    """There is nothing to resume from; the message says where it was looked for."""


def find_latest(folder: Path) -> Path:
    """Return the newest complete checkpoint or savepoint below `folder`.

    Complete is what has its `_metadata`: Flink writes that last. Newest is by the time it was written, since
    the numbers of checkpoints begin again with every job.

    Raises: NoCheckpointError when there is none.
    """
    found: list[tuple[int, str, Path]] = []
    for pattern in ("chk-*", "*/chk-*", "savepoint-*", "*/savepoint-*"):
        for candidate in folder.glob(pattern):
            metadata = candidate / "_metadata"
            if metadata.is_file() and metadata.stat().st_size > 0:
                found.append((metadata.stat().st_mtime_ns, candidate.name, candidate))
    if not found:
        message = f"no complete checkpoint or savepoint below {folder}"
        raise NoCheckpointError(message)
    return max(found)[2]


def find_state(where: str, checkpoints: Path) -> Path:
    """Return the folder that `--resume WHERE` means: `latest`, a checkpoint, a savepoint, or a folder of them.

    Raises: NoCheckpointError.
    """
    if where == "latest":
        return find_latest(checkpoints)
    path = Path(where.removeprefix("file://")).absolute()
    return path if (path / "_metadata").is_file() else find_latest(path)


def state_size(checkpoint: Path) -> int:
    """Return the bytes of a checkpoint with the files that it shares with others of its job."""
    shared = checkpoint.parent / "shared"
    folders = [checkpoint, *([shared] if checkpoint.name.startswith("chk-") and shared.is_dir() else [])]
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
