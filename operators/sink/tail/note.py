"""Note beside the tails of a machine, so that a server there needs no other folder to identify their job."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from freshet.files.json_file import DamagedFileError, read_json, write_json

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
    kind_name: str = ""  # of the vertices: of one of several kinds, or of the only one that the model returns

    def write(self, folder: Path) -> None:
        """Have it beside the tails; readers find a whole one.

        Raises:
            OSError: there is no space for it.
        """
        write_json(folder / _NAME, asdict(self), synced=False)

    @staticmethod
    def read(folder: Path) -> dict[str, Any] | None:
        """Return its fields, by name; None if there is none, or one damaged by a power loss."""
        try:
            found = read_json(folder / _NAME, TailNote, "the job writes another one")
        except DamagedFileError:
            return None
        return None if found is None else asdict(found) | {"sources": list(found.sources)}
