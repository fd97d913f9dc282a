"""Where stages put rejected records: counted by reason, then on to a file, or to a queue that fills a topic."""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import orjson

from operators.dead_letters import DeadLetter, DeadLetterFile
from operators.status import StatusFile, read_statuses

STATUS_PREFIX = "letters-"
BLOCK_BYTES = 128 << 10
# A record larger than a megabyte is refused by Kafka's defaults, whose clients count some bytes on top.
LETTER_BYTES = 700_000
_KEPT_BYTES = 64 << 10
_PARTICULARS = re.compile(
    r",? got .*| as one more$| at index \d+|: .*\(char \d+\)$| at byte \d+$"
    r"|(?<=^not an Arrow IPC stream): .*|(?<=events_map does not apply): .*",
    re.DOTALL,
)
_REASON_LENGTH = 80
# Reasons stand in the status file and the summary line: whatever a record can make of one, they stay few.
REASONS_MAX = 200
OTHER_REASONS = "other reasons"


def reason_of(error: str) -> str:
    """What all errors of a kind say, without the value at hand: `x: expected 8 numbers`."""
    return _PARTICULARS.sub("", error)[:_REASON_LENGTH]


class LetterQueue:
    """Rejected records as lines of text for a topic (see operators/kafka_lines.py), until they are taken.

    The key is SOURCE/PARTITION/OFFSET, the value the JSON object of the file form, in ASCII; of a record that Kafka
    would not take for its length only the beginning is kept (`raw_base64`), with its `raw_bytes`.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append letters."""
        for letter in letters:
            record = orjson.loads(letter.to_json())
            text = json.dumps(record)
            if len(text) > LETTER_BYTES:
                record.pop("raw", None)
                record["error"] = record["error"][:_KEPT_BYTES]
                record["raw_base64"] = base64.b64encode(letter.raw[:_KEPT_BYTES]).decode()
                text = json.dumps(record | {"raw_bytes": len(letter.raw)})
            key = f"{record['source']}/{letter.partition}/{letter.offset}"
            self._lines.append(f"\t{key.encode().hex()}\t{text}")

    def take(self) -> list[str]:
        """All lines since the last call, in blocks."""
        blocks: list[str] = []
        held: list[str] = []
        size = 0
        for line in self._lines:
            held.append(line)
            size += len(line)
            if size >= BLOCK_BYTES:
                blocks.append("\n".join(held))
                held, size = [], 0
        self._lines = []
        return [*blocks, "\n".join(held)] if held else blocks


class LetterBox:
    """Takes a stage's rejected records; `reasons` counts them as often as they were written, across restarts too."""

    def __init__(self, target: DeadLetterFile | LetterQueue, out: Path | None = None, operator: str = "") -> None:
        """Without `out` nothing is told; with it the counts are in the status file of the operator."""
        self._target = target
        self._status = None if out is None else StatusFile(out, f"{STATUS_PREFIX}{operator}")
        self.reasons: Counter[str] = Counter()
        if self._status is not None and self._status.path.exists():
            self.reasons.update(orjson.loads(self._status.path.read_bytes())["reasons"])

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Pass letters on; in a file they are when this returns."""
        letters = list(letters)
        if not letters:
            return
        self._target.write(letters)
        for letter in letters:
            reason = reason_of(letter.error)
            known = reason in self.reasons or len(self.reasons) < REASONS_MAX
            self.reasons[reason if known else OTHER_REASONS] += 1
        if self._status is not None and self._status.is_due(now_ms := time.time() * 1e3):
            self._status.write({"reasons": self.reasons}, now_ms)

    def take(self) -> list[str]:
        """Blocks of lines for the topic; none where there is a file."""
        return self._target.take() if isinstance(self._target, LetterQueue) else []

    def close(self) -> None:
        """Write the last counts."""
        if self._status is not None and self.reasons:
            self._status.write({"reasons": self.reasons}, time.time() * 1e3)


def read_reasons(out: Path) -> dict[str, int]:
    """How many records were rejected for what reason, the most frequent first."""
    counts: Counter[str] = Counter()
    for status in read_statuses(out, STATUS_PREFIX):
        counts.update(status["reasons"])
    return dict(counts.most_common())
