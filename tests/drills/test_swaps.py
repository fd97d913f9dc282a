"""A model is exchanged while readers ask by all ways (scripts/drills/swap_models.py is the same, longer)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.job.service.generations import GENERATION
from tests.drills.swap_answers import SCHEMA
from tests.drills.swap_oracle import Asked, Verdict
from tests.drills.swaps import SwapCase, Swaps
from tests.support.runs.judge import say

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_every_answer_is_of_one_job(tmp_path: Path) -> None:
    """Of a local job, which needs no broker; what is wrong would be found."""
    ways = "flight all", "http http", "mapped rows", "mapped get"
    drill = Swaps(SwapCase(seconds=1, rate=500, local=True, pace=5, ways=ways, vertices=300), tmp_path, say)
    found = drill.run()
    print(found.summary)
    assert found.verdict.good, found.verdict
    assert len(found.summary["by_generation"]) == 4
    rows, whole = (next(one for one in drill.answers if one.name == name) for name in ("mapped get", "flight all"))
    for what, asked, fault in (
        ("wrong", rows, lambda line: line["rows"].__setitem__(0, line["rows"][0] ^ 1)),
        ("wrong", rows, lambda line: line["logits"].__setitem__(0, line["logits"][0] ^ 1)),
        ("wrong", rows, lambda line: line.update(model="0" * 64)),
        ("wrong", rows, lambda line: line.update(generation=line["generation"] ^ 1)),
        ("wrong", whole, lambda line: line["rows"].__setitem__(0, line["rows"][0] ^ 1)),
        ("wrong", whole, lambda line: line["logits"].__setitem__(0, line["logits"][0] ^ 1)),
        ("mixed", rows, lambda line: line["own"].__setitem__(0, (line["own"][0] + GENERATION) % (2 * GENERATION))),
        ("back", rows, lambda line: line.update(as_of_ms=1)),
        ("lost", rows, lambda line: [line[name].pop() for name in ("ids", "own", "rows", "logits")]),
        ("errors_apart", rows, lambda line: line.update(error="on purpose")),
    ):
        assert getattr(_verdict_of(drill, asked, fault), what) == 1, what


def _verdict_of(drill: Swaps, asked: Asked, fault: Callable[[dict[str, Any]], Any]) -> Verdict:
    """Judge the answers of a reader, of which one in the middle has a fault."""
    lines = asked.answers.to_pylist()
    middle = next(k for k in range(len(lines) // 2, len(lines)) if lines[k]["count"])
    fault(lines[middle])
    oracle = drill.oracle()
    oracle.judge(replace(asked, answers=pa.Table.from_pylist(lines, SCHEMA)))
    assert sum(value > 0 for name, value in asdict(oracle.verdict).items() if name != "notes") >= 2
    return oracle.verdict
