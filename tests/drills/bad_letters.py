"""Holds the dead letters of a run against what is known of the malformed records in its topic."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.drills.bad_stream import Bad, Place, digest_of

REASON_LENGTH = 400  # a reason is a line to read, however long the record is


@dataclass
class Letters:
    """What was found; all zeros but `right` is what should be.

    right: records whose letters say the truth (one letter may be for the rest of a flood); missing: bad records
    without one; repeated: letters of a record beyond the first; unknown: letters of places where nothing bad stands;
    altered: of a bad record, but with other bytes; misplaced: of another source; untrue: the reason is not why.
    """

    right: int = 0
    missing: int = 0
    repeated: int = 0
    unknown: int = 0
    altered: int = 0
    misplaced: int = 0
    untrue: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> dict[str, int]:
        """What is not as it should be, by name."""
        names = ("missing", "repeated", "unknown", "altered", "misplaced", "untrue")
        return {name: getattr(self, name) for name in names}

    def note(self, text: str) -> None:
        """Keep the first few findings."""
        if len(self.notes) < 10:
            self.notes.append(text[:500])


def judge(lines: Iterable[bytes], expected: Mapping[Place, list[Bad]], source: str) -> Letters:
    """Look at each letter of a file of dead letters once."""
    found = Letters()
    open_ends = {place: list(bad) for place, bad in expected.items()}
    for line in lines:
        _judge_one(orjson.loads(line), open_ends, expected, source, found)
    for place, rest in open_ends.items():
        found.missing += len(rest)
        for bad in rest:
            found.note(f"no letter for {bad.way.name} at {place}")
    return found


def raw_of(letter: Mapping[str, Any]) -> bytes:
    """The record that a letter holds."""
    return base64.b64decode(letter["raw_base64"]) if "raw_base64" in letter else letter["raw"].encode()


def _judge_one(
    letter: Mapping[str, Any],
    open_ends: dict[Place, list[Bad]],
    expected: Mapping[Place, list[Bad]],
    source: str,
    found: Letters,
) -> None:
    place, raw, reason = (letter["partition"], letter["offset"]), raw_of(letter), letter["error"]
    if letter["source"] != source:
        found.misplaced += 1
        found.note(f"source {letter['source']} at {place}")
    elif place not in expected:
        found.unknown += 1
        found.note(f"nothing bad at {place}, yet: {reason}")
    elif (bad := _match(raw, open_ends[place], letter.get("records", 1))) is not None:
        open_ends[place].remove(bad)
        found.counts[bad.way.name] += bad.records
        found.examples.setdefault(bad.way.name, reason)
        words = bad.way.words if bad.records == 1 else ("the rest of a message",)
        if all(word in reason for word in words) and len(reason) <= REASON_LENGTH:
            found.right += bad.records
        else:
            found.untrue += 1
            found.note(f"{bad.way.name} at {place}: {reason}")
    elif _match(raw, expected[place], letter.get("records", 1)) is not None:
        found.repeated += 1
        found.note(f"once more: {place}: {reason}")
    else:
        found.altered += 1
        found.note(f"other bytes at {place}: {reason}: {raw[:100]!r}")


def _match(raw: bytes, among: list[Bad], records: int) -> Bad | None:
    """The record (or rest of so many) of those at a place that the bytes belong to."""
    for bad in among:
        if bad.records != records:
            continue
        if bad.digest is None:
            return bad
        try:
            if digest_of(raw, bad.way) == bad.digest:
                return bad
        except ValueError:  # no JSON, so no row
            continue
    return None
