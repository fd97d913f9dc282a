"""Positions in topics that the Parsers' tasks write down as their status, and what they say together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from freshet.files.json_file import as_kind
from freshet.operators.telemetry.status_file import read_statuses

POSITIONS_PREFIX = "kafka-"
_NEXT = list[tuple[int, int] | tuple[int, int, int]]  # earlier versions wrote no times


class NextOffset(NamedTuple):
    """Offset of a partition's next message, as of a time."""

    offset: int
    time_ms: int = 0


def positions_in(status: dict[str, Any]) -> dict[int, NextOffset]:
    """Return the positions in a status file, by partition; none where it has none."""
    try:
        found = as_kind(status.get("next", []), _NEXT)
    except ValueError:
        return {}
    return {partition: NextOffset(*rest) for partition, *rest in found}


def read_positions(out: Path) -> dict[str, dict[int, int]]:
    """Return, by source and partition, the offset of the next message that the job will read.

    A partition may have been read by several tasks, one after the other, of which some are gone: the last one counts.
    """
    newest: dict[str, dict[int, NextOffset]] = {}
    for one in read_statuses(out, POSITIONS_PREFIX, needs={"source": str, "next": _NEXT}):
        known = newest.setdefault(one["source"], {})
        for partition, found in positions_in(one).items():
            if partition not in known or found.time_ms >= known[partition].time_ms:
                known[partition] = found
    return {source: {partition: one.offset for partition, one in known.items()} for source, known in newest.items()}
