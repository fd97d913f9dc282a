"""Slots of a cluster are counted before a job is submitted, and waited for."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.job.flink import rest as cluster
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.rest import FlinkRest


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cluster answers: `free` slots, one count after the other, and its `options`."""
    told: dict[str, Any] = {"free": [1, 3, 4], "options": {"execution.target": "remote"}}

    def call(_rest: FlinkRest, _method: str, path: str) -> Any:
        if path == "/overview":
            return {"slots-available": told["free"].pop(0) if len(told["free"]) > 1 else told["free"][0]}
        return [{"key": key, "value": value} for key, value in told["options"].items()]

    monkeypatch.setattr(FlinkRest, "_call", call)
    monkeypatch.setattr(cluster, "_SLOTS_POLL_S", 0.0)
    return told


def test_a_job_waits_for_its_slots(slots: dict[str, Any]) -> None:
    said: list[str] = []
    assert cluster.await_slots("h:1", 4, said.append, lambda: False)
    assert [text.partition(";")[0] for text in said] == [
        "cluster has 1 free slot, 4 wanted",
        "cluster has 3 free slots, 4 wanted",
    ]


@pytest.mark.parametrize(
    ("parallelism", "pipeline", "readers", "wanted"),
    [(2, 2, (), 2), (2, 2, (1,), 2), (2, 2, (3,), 4), (4, 2, (2, 3), 5), (1, 1, (4,), 4), (2, 1, (2,), 2)],
)
def test_readers_beyond_the_subtasks_of_a_layer_want_slots_of_their_own(
    parallelism: int, pipeline: int, readers: tuple[int, ...], wanted: int
) -> None:
    shape = {"parts": 2, "parallelism": parallelism, "pipeline": pipeline, "topic_readers": readers}
    assert JobSpec(out="O", layers=2, cluster="h:1", **shape).slots_of_cluster == wanted


def test_a_signal_ends_the_wait(slots: dict[str, Any]) -> None:
    said: list[str] = []
    slots["free"] = [0]
    assert not cluster.await_slots("h:1", 4, said.append, lambda: len(said) > 2)


@pytest.mark.parametrize(
    "options",
    [
        {"execution.target": "kubernetes-session"},
        {"execution.target": "yarn-session"},
        {"kubernetes.internal.jobmanager.entrypoint.class": "o.a.f.KubernetesSessionClusterEntrypoint"},
    ],
)
def test_a_cluster_that_starts_task_managers_by_itself_has_none_before(slots: dict[str, Any], options: Any) -> None:
    slots |= {"free": [0], "options": options}
    assert cluster.await_slots("h:1", 4, lambda _text: pytest.fail("it waits for ever"), lambda: False)
