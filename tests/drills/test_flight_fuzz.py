"""The Flight fuzzer at small: the server lives, and answers right."""

from __future__ import annotations

import pytest

from tests.drills.flight_fuzz import fuzz


@pytest.mark.parametrize("kind", ["int", "string"])
def test_changed_bytes_do_no_harm(kind):
    found = fuzz(kind, 3000, seed=1)
    assert (found.wrong, found.alive) == (0, True)
    assert found.messages >= 3000
    assert min(found.rows, found.refused, found.ended) > 100
