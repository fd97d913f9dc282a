"""Records of the servers that scripts/kafka and scripts/cluster started, so that `stop` finds them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from freshet.files.json_file import read_json, write_json


def servers_folder(kind: str) -> Path:
    """Return this user's folder for servers of a kind (`kafka`, `cluster`); each has a file and a folder there."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "freshet" / kind


def remember(kind: str, port: int, **fields: Any) -> None:
    """Note a server that was started; what was noted of the port before is replaced."""
    write_json(_file(kind, port), fields)


def remembered(kind: str) -> dict[int, dict[str, Any]]:
    """Return the recorded servers by port, including those that have died since."""
    files = servers_folder(kind).glob("[0-9]*.json")
    found = {int(file.stem): read_json(file, dict[str, Any], "remove it") for file in sorted(files)}
    return {port: fields for port, fields in found.items() if fields is not None}


def forget(kind: str, port: int) -> None:
    """Take a server's note away."""
    _file(kind, port).unlink(missing_ok=True)


def _file(kind: str, port: int) -> Path:
    return servers_folder(kind) / f"{port}.json"
