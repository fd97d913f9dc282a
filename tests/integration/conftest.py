"""Jobs and servers in processes of their own, of which nothing is left after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.runs.jobs import Input, Job
from tests.support.serving.server import Server


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """A list to append jobs to, which are ended after the test."""
    started: list[Job] = []
    yield started
    for one in started:
        one.end()


@pytest.fixture
def job(jobs: list[Job], tmp_path: Path) -> Callable[[Input], Job]:
    """Makes a job on an input."""

    def make(given: Input) -> Job:
        jobs.append(Job(given, tmp_path / "out"))
        return jobs[-1]

    return make


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """A list to append servers to, which are ended after the test."""
    started: list[Server] = []
    yield started
    for one in started:
        one.end()
