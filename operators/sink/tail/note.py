"""What lies beside the tails of a machine, so that a server there needs no other folder to know whose they are."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

_NAME = "job.json"


@dataclass(frozen=True, slots=True)
class TailNote:
    """The job that the tails of a folder are of; every part and attempt writes the same."""

    job_id: str
    parts: int
    width: int
    strings: bool
    sources: tuple[str, ...] = ()
    model_folder: str = ""
    begins_empty: bool = False  # epoch 0 has no rows

    def write(self, folder: Path) -> None:
        """Have it beside the tails; readers find a whole one.

        Raises:
            OSError: there is no space for it.
        """
        aside = folder / f".{_NAME}.{secrets.token_hex(4)}"
        try:
            aside.write_bytes(orjson.dumps(asdict(self)))
            aside.replace(folder / _NAME)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    @staticmethod
    def read(folder: Path) -> dict[str, Any] | None:
        """What it says, by name; None where there is none, or one that a loss of power has torn."""
        try:
            told: dict[str, Any] = orjson.loads((folder / _NAME).read_bytes())
        except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
            return None
        return told
