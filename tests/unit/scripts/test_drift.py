"""scripts/bench/drift.py: each of its streams goes through a Storage, whose sums stay near the true ones."""

import pytest

from scripts.bench.drift import STREAMS, run


@pytest.mark.parametrize("name", STREAMS)
def test_each_stream_is_followed(name: str) -> None:
    found = run(name, 400 if name == "spikes" else 4000, 2)  # of spikes, each update is an epoch
    assert len(found.updates) == len(found.errors) >= 2
    assert max(map(max, found.errors)) < 2.0**-20
