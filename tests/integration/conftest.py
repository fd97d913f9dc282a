"""Jobs and servers in processes of their own, of which nothing is left after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freshet.job.dev.broker import Broker, start_broker
from tests.support.kafka.topics import broker_folder, require_jars
from tests.support.runs.jobs import Input, Job
from tests.support.serving.server import Server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker without logins for the tests of a module; its jars come over the network once."""
    require_jars()
    folder = broker_folder(tmp_path_factory.mktemp("broker"))
    with folder as data, start_broker(data, sasl=False, tls=False) as started:
        yield started


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
