"""Clients of a job on a cluster are killed (scripts/drills/kill_clients.py is the same, longer)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.clients import ClientKills
from tests.support.runs.judge import say

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_clients_are_killed_and_the_job_goes_on(tmp_path: Path) -> None:
    ClientKills(tmp_path, 20_000, ("other host",), say).run()
