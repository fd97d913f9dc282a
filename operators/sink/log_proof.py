"""Proof by the files of a change log, which are synced before they are visible: the epoch up to which it is complete.

Status files and heartbeats say so sooner, and may be lost or torn in a power cut. Where they are, the files stand in
for them; where they say more than any file has, the files hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.files.json_file import DamagedFileError
from freshet.operators.output_folders import LogFolders
from freshet.state.checksums.sealed import SealedFile, SealError

BASE_PREFIX = "base-"  # of a file that repeats the newest rows of others (`freshet compact`)
NOTHING = -1  # not even epoch 0
_ANY = np.iinfo(np.int64).max


def complete_epoch(
    log: LogFolders, parts: int, claims: Mapping[int, int], *, has_finished: bool, noted: int | None
) -> int:
    """Return the last epoch up to which the change log shows all rows of all parts; NOTHING if none is proven.

    `claims`: by part, the epoch of status and heartbeat; `has_finished`: every part has written all its rows; `noted`:
    the epoch recorded when a run ended.

    Raises: DamagedFileError if a file that decides is damaged.
    """
    recorded = last_recorded(log)
    if has_finished and recorded > NOTHING:
        return max(recorded, newest_base(log))
    claimed = min(
        (claims[part] if part in claims else last_of_part(log, part) for part in range(parts)), default=NOTHING
    )
    claimed = max(claimed, NOTHING if noted is None else noted)
    if claimed > recorded:  # epochs/ may wait for further files of the log
        claimed = min(claimed, max(recorded, *(last_of_part(log, part) for part in range(parts))))
    return max(claimed, newest_base(log))  # last of all: it is there before files go that it covers


def last_recorded(log: LogFolders) -> int:
    """The last epoch that `epochs/` has."""
    return _last(log.epochs, "[!._]*.parquet")


def last_of_part(log: LogFolders, part: int) -> int:
    """The last epoch in the files of a part, which come in order."""
    return _last(log.embeddings, f"part-{part}-*.parquet")


def newest_base(log: LogFolders) -> int:
    """The epoch of the newest base, which has all up to it."""
    return max(map(epoch_of_base, log.embeddings.glob(f"{BASE_PREFIX}*.parquet")), default=NOTHING)


def epoch_of_base(base: Path) -> int:
    """The epoch that a base is of, by its name."""
    return int(base.stem.removeprefix(BASE_PREFIX))


def _last(folder: Path, names: str) -> int:
    """The last epoch in the last of these files; where compaction has removed that one, of those that are left."""
    while (newest := max(folder.glob(names), default=None)) is not None:
        try:
            last = epochs_of(newest)[1]
            return last if last < _ANY else _last_row(newest)
        except FileNotFoundError:
            if newest.is_symlink():  # to what is not there
                raise
    return NOTHING


def _last_row(path: Path) -> int:
    with reading(path) as file:
        epochs = pq.read_table(file, columns=["epoch"])["epoch"].to_numpy()
    return int(epochs.max(initial=NOTHING))


def epochs_of(path: Path) -> tuple[int, int]:
    """The first and the last epoch of a file; bounds of all where it does not say.

    Raises: DamagedFileError for a file that is no whole one.
    """
    with reading(path) as file:
        metadata = pq.read_metadata(file)
    names = columns_of(metadata)
    if "epoch" not in names:
        raise _damaged(path, f"it has the columns {', '.join(names[:9])}")
    column = names.index("epoch")
    found = [metadata.row_group(k).column(column).statistics for k in range(metadata.num_row_groups)]
    if any(one is None or not one.has_min_max for one in found) or not found:
        return 0, _ANY
    return min(one.min for one in found), max(one.max for one in found)


def columns_of(metadata: pq.FileMetaData) -> list[str]:
    """Return the names of the columns of a file, in their order.

    `metadata.schema` refers back to the metadata, so both stay until the garbage collector runs: in a server that
    follows a log these were hundreds of MiB.
    """
    if not metadata.num_row_groups:
        names: list[str] = metadata.schema.names
        return names
    group = metadata.row_group(0)
    return [group.column(k).path_in_schema.rpartition(".")[2] for k in range(metadata.num_columns)]


@contextmanager
def reading(path: Path) -> Iterator[SealedFile]:
    """A file of the log, or a base, opened for pyarrow; every byte of it is checked before it is taken.

    Raises: DamagedFileError for a file that is not what was written.
    """
    try:
        with SealedFile(path) as file:
            yield file
    except (pa.ArrowException, KeyError, AttributeError, SealError) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        if error.errno is not None:  # of the disk
            raise
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, what: str) -> DamagedFileError:
    """Return the error for an unreadable file of the log."""
    advice = "put it back from a copy"
    if path.name.startswith(BASE_PREFIX):
        advice += "; where all files of the change log were kept (--keep-changes all) it may be removed instead"
    return DamagedFileError(f"{path} is damaged ({' '.join(what.split())[:80]}): {advice}")
