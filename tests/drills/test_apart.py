"""Servers without a shared folder, through a rescaling and deaths (scripts/drills/serve_apart is the same, longer)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.apart import Apart
from tests.support.runs.judge import say

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lose", [False, True], ids=["rescaled", "machine lost"])
@pytest.mark.long
def test_three_servers_that_share_no_folder(lose: bool, tmp_path: Path) -> None:
    found = Apart(tmp_path, 12_000, say, lose).run()
    print(f"epochs {found.epochs}, answers {found.answers}, seen by each: {found.seen}")
    assert found.good, found.wrong
