"""A block goes through the Parser once: each module is entered once for it, not once a column."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from freshet.operators.parser.core import Origin, Parser
from freshet.schema import Features

ROWS = [
    {"op": "add_edge", "src": "a", "dst": "b", "weight": 0.5, "type": "t", "attr": [1.0]},
    {"op": "set_features", "id": "a", "x": [1.0, 2.0]},
    {"op": "del_edge", "src": "a", "dst": "b", "type": "t"},
] * 10
ONCE = ("operators/parser/core.py", "operators/parser/columns.py", "operators/parser/arrow/fields.py")


def module_of(frame: FrameType | None) -> str:
    path = Path(frame.f_code.co_filename).as_posix() if frame is not None else ""
    return next((name for name in ONCE if path.endswith(name)), path)


@pytest.mark.parametrize("kind", ["int", "string"])
def test_a_block_is_taken_in_one_pass(kind: str) -> None:
    number = {"a": 1, "b": 2}
    rows = [{k: number.get(str(v), v) if kind == "int" else v for k, v in row.items()} for row in ROWS]
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in ROWS for name in row)}
    table, parser, seen = pa.table(columns), Parser(Features(2), kind), Counter[str]()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (module := module_of(frame)) in ONCE and module != module_of(frame.f_back):
            seen[module] += 1

    parser.parse_table(table, Origin())
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        events, letters = parser.parse_table(table, Origin())
    finally:
        sys.setprofile(before)
    assert len(events) == len(ROWS)
    assert not letters
    assert seen == dict.fromkeys(ONCE, 1)
