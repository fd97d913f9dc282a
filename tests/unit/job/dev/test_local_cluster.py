"""A Flink cluster of several processes on this machine, without its processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from freshet.job.dev.local_cluster import ClusterProcess, LocalCluster
from freshet.job.machine.processes import began_s


def test_it_is_ready_once_its_slots_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TaskManager registers first."""
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.task_managers = [ClusterProcess(os.getpid(), began_s(), "taskmanager-1", 1)]
    answers = [[], [{"id": "taskmanager-1", "slotsNumber": 0}], [{"id": "taskmanager-1", "slotsNumber": 1}]]
    monkeypatch.setattr(cluster, "get", lambda _: {"taskmanagers": answers.pop(0)})
    cluster.await_ready(60)
    assert not answers
