"""Lines of JSON, one event each: judged one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from freshet.operators.parser.dead_letters import DeadLetter
from freshet.operators.parser.formats import BOM
from freshet.operators.parser.rejects import Origin, rest_of_message
from freshet.operators.parser.rules import Rules
from freshet.partitioner.event_builder import EventBuilder


def append_lines(
    lines: Sequence[bytes],
    positions: Iterable[int],
    rules: Rules,
    builder: EventBuilder,
    origin: Origin,
    letters: list[DeadLetter],
    letters_max: int,
) -> None:
    """Append the events of lines; `positions` are the offsets that follow each.

    Past `letters_max` bad lines one letter has the rest.
    """
    append, loads = rules.append, orjson.loads
    bad = position = 0
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
            bad += 1
            if bad <= letters_max:
                letters.append(DeadLetter(error, origin.name, origin.partition, position - 1, line))
    if bad > letters_max:
        letters.append(rest_of_message(origin, position - 1, bad - letters_max))


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
