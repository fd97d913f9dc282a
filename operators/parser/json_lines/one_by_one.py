"""Lines of JSON judged one by one, with the reason where a line is no event. These reasons hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import orjson

from freshet.operators.parser.formats import BOM
from freshet.operators.parser.rules import Rules
from freshet.partitioner.event_builder import EventBuilder


def append_lines(
    lines: Sequence[bytes],
    positions: Iterable[int],
    rules: Rules,
    builder: EventBuilder,
    reject: Callable[[str, int, bytes], None],
) -> None:
    """Append the events of lines, and call `reject` with the reason, the position and the line where it is bad.

    `positions` are the positions that follow each line.
    """
    append, loads = rules.append, orjson.loads
    for line, position in zip(lines, positions, strict=False):
        try:
            record = loads(line)
            error = append(record, builder, position)
        except orjson.JSONDecodeError as cause:
            text = line.removeprefix(BOM)
            if not text.strip():
                continue
            error = _not_json(line, cause) if len(text) == len(line) else _append_text(text, rules, builder, position)
        if error is not None:
            builder.reject()
            reject(error, position, line)


def _append_text(text: bytes, rules: Rules, builder: EventBuilder, position: int) -> str | None:
    """Append the event of a line that had a byte order mark."""
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError as cause:
        return _not_json(text, cause)
    return rules.append(record, builder, position)


def _not_json(line: bytes, cause: Exception) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return f"not JSON: {cause}"
