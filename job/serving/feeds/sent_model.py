"""The model of a job as one server sends it to another, so that both give logits: its two files, and their digest."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from freshet.gnn.kinds.model import load_any_model
from freshet.gnn.model import SPEC_FILE, WEIGHTS_FILE, ModelError

_PIECE = 1 << 20
_BYTES_MAX = 4 << 30


def digest_of(folder: str) -> str:
    """The SHA-256 of a model's files, in hexadecimal; empty where there is none."""
    if not folder:
        return ""
    try:
        digest = hashlib.sha256((Path(folder) / SPEC_FILE).read_bytes())
        with (Path(folder) / WEIGHTS_FILE).open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:  # the folder has moved since the job began
        return ""
    return digest.hexdigest()


def pieces_of(folder: str) -> Iterator[bytes]:
    """Yield the messages to send: the description, then the weights in pieces."""
    yield (Path(folder) / SPEC_FILE).read_bytes()
    with (Path(folder) / WEIGHTS_FILE).open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def folder_of(tables: Path, digest: str) -> Path:
    """Return the folder of a model that was sent; `digest` was checked (`job_fields`), since it becomes a name."""
    return tables / f"model-{digest[:16]}"


def take(pieces: Iterable[bytes], tables: Path, digest: str) -> None:
    """Write a model that is being sent; it is whole and fits together on return.

    Raises: ModelError for anything else than the model that was announced.
    """
    folder = folder_of(tables, digest)
    tables.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=tables))
    try:
        _write(pieces, work)
        if digest_of(str(work)) != digest:
            msg = f"the model that was sent has the SHA-256 {digest_of(str(work))[:16]}, expected {digest[:16]}"
            raise ModelError(msg)
        load_any_model(work)
        work.rename(folder)  # what stands there already is no empty folder: it stays, and this fails
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(pieces: Iterable[bytes], work: Path) -> None:
    size, found = 0, iter(pieces)
    (work / SPEC_FILE).write_bytes(next(found, b""))
    with (work / WEIGHTS_FILE).open("wb") as file:
        for piece in found:
            size += len(piece)
            if size > _BYTES_MAX:
                msg = f"the model that is sent has more than {_BYTES_MAX:,} bytes"
                raise ModelError(msg)
            file.write(piece)
