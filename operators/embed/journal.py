"""What of an embedding is finished, so that a later attempt goes on there: one JSON file, replaced whole."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import orjson

from operators.embed.files import EmbedError, full_disk

FORMAT = 2
NAME = "journal.json"


class Journal:
    """The finished steps by name. What a step says is on the disk before the step is in the journal."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.steps: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"format": FORMAT}
        try:
            steps: dict[str, Any] = orjson.loads(self.path.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            msg = f"{self.path}: can't be read ({error}); remove the folder and embed again"
            raise EmbedError(msg) from error
        if steps.get("format") != FORMAT:
            msg = f"{self.path}: of another version of Freshet; remove the folder and embed again"
            raise EmbedError(msg)
        return steps

    def get(self, name: str) -> Any:
        """What the step said, None if it is not finished."""
        return self.steps.get(name)

    def put(self, name: str, value: Any) -> None:
        """Note a step; other processes may have noted theirs meanwhile."""
        aside = self.path.with_suffix(".tmp")
        try:
            with self.path.with_suffix(".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
                self.steps = self._read() | {name: value}
                with aside.open("wb") as file:
                    file.write(orjson.dumps(self.steps))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(aside, self.path)
        except OSError as error:
            raise full_disk(aside, error) from None
