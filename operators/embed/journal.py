"""Finished steps of an embedding, so that a later attempt continues: one JSON file, replaced as a whole."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.operators.embed.files import EmbedError, full_disk

FORMAT = 3
NAME = "journal.json"


class StepJournal:
    """The finished steps by name. What a step says is on the disk before the step is in the journal."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.steps: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            steps = read_json(self.path, dict[str, Any], "remove the folder and embed again")
        except DamagedFileError as error:
            raise EmbedError(str(error)) from None
        if steps is None:
            return {"format": FORMAT}
        if steps.get("format") != FORMAT:
            msg = f"{self.path}: of another version of Freshet; remove the folder and embed again"
            raise EmbedError(msg)
        return steps

    def get(self, name: str) -> Any:
        """Return the result of the step, None if it is not finished."""
        return self.steps.get(name)

    def put(self, name: str, value: Any) -> None:
        """Note a step; other processes may have noted theirs meanwhile."""
        try:
            with self.path.with_suffix(".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
                self.steps = self._read() | {name: value}
                write_json(self.path, self.steps)
        except OSError as error:
            raise full_disk(self.path, error) from None
