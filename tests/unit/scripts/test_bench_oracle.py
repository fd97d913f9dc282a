"""The oracle of scripts/bench_serve finds what is torn, wrong, missing or too much."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.sink.change_log import embeddings_schema
from scripts.bench.serving import oracle as serve_oracle
from scripts.bench.serving.oracle import Sample


@pytest.fixture
def oracle(tmp_path):
    (tmp_path / "embeddings").mkdir()
    rows = [(1, 0, 1.0, False), (2, 0, 2.0, False), (1, 3, 3.0, False), (2, 4, 0.0, True)]
    table = pa.Table.from_pydict(
        {
            "id": [row[0] for row in rows],
            "epoch": [row[1] for row in rows],
            "embedding": [[row[2]] * 2 for row in rows],
            "deleted": [row[3] for row in rows],
        },
        schema=embeddings_schema(2, "int"),
    )
    pq.write_table(table, tmp_path / "embeddings" / "part-0-00000000.parquet")
    return serve_oracle.Oracle(tmp_path)


def sample(epoch, ids, epochs, values, asked=None):
    rows = np.array([[value] * 2 for value in values], np.float32).reshape(-1, 2)
    return Sample(epoch, None if asked is None else np.array(asked), np.array(ids, np.int64), np.array(epochs), rows)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (sample(2, [1, 2], [0, 0], [1.0, 2.0]), (0, 0)),
        (sample(3, [1, 2], [3, 0], [3.0, 2.0]), (0, 0)),
        (sample(4, [1], [3], [3.0]), (0, 0)),
        (sample(4, [1], [3], [3.0], asked=[1, 2, 99]), (0, 0)),
        (sample(3, [1, 2], [3, 0], [1.0, 2.0]), (1, 0)),  # the rows of another epoch than it says
        (sample(3, [1, 2], [0, 0], [1.0, 2.0]), (0, 1)),  # an older row
        (sample(2, [1, 2], [3, 0], [3.0, 2.0]), (0, 1)),  # a newer one
        (sample(2, [1], [0], [1.0]), (0, 1)),  # one is missing
        (sample(4, [1, 2], [3, 0], [3.0, 2.0]), (0, 1)),  # one is dead
    ],
)
def test_verdicts(oracle, answer, verdict):
    assert oracle.judge(answer) == verdict
