"""The dead letter file."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from operators.dead_letters import DeadLetter, DeadLetterFile


def test_letters_are_appended_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dead_letters.jsonl"
    with DeadLetterFile(path) as file:
        file.write([])
        assert not path.exists()
        file.write([DeadLetter("op: missing", "a.jsonl", 0, 4, b'{"id":"\xc3\xa4"}')])
        file.write([DeadLetter("not UTF-8", "a.jsonl", 1, 5, b"\xff\0"), DeadLetter("e", "b\udcff", 0, 0, b"")])
        assert file.written == 3
    DeadLetterFile(path).write([DeadLetter("again", "c", 0, 0, b"x\ny")])
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert letters == [
        {"error": "op: missing", "source": "a.jsonl", "partition": 0, "offset": 4, "raw": '{"id":"ä"}'},
        {
            "error": "not UTF-8",
            "source": "a.jsonl",
            "partition": 1,
            "offset": 5,
            "raw_base64": base64.b64encode(b"\xff\0").decode(),
        },
        {"error": "e", "source": "b?", "partition": 0, "offset": 0, "raw": ""},
        {"error": "again", "source": "c", "partition": 0, "offset": 0, "raw": "x\ny"},
    ]
