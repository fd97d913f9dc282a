"""Which operators of a Flink job share a thread."""

from __future__ import annotations

import pytest

from freshet.job.flink.dataflow import chained_operators
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.pipeline import OperatorGroups
from freshet.operators.dataflow import FEATURES, SINK, Dataflow

LAYERS = 2
TAILS = {"tail1", "tail2"}


@pytest.mark.parametrize(
    ("parts", "tasks", "parallelism", "pipeline", "chained"),
    [
        (1, [1], 1, 1, {FEATURES, SINK}),
        (1, [1], 2, 2, {FEATURES, SINK}),
        (1, [1], 4, 4, {FEATURES}),  # the Sink is alone in the last process
        (4, [4], 1, 1, {FEATURES, *TAILS}),  # the Sink hears storage 2 and tail 2
        (4, [4], 2, 2, {FEATURES, *TAILS}),
        (4, [2, 2], 2, 1, set()),  # each task sends to both
        (4, [], 4, 1, set()),
    ],
)
def test_those_do_that_hear_one_task_alone(
    parts: int, tasks: list[int], parallelism: int, pipeline: int, chained: set[str]
) -> None:
    stage = {"tasks": tasks}
    spec = JobSpec(out="out", layers=LAYERS, parts=parts, stage=stage, parallelism=parallelism, pipeline=pipeline)
    flow, groups = Dataflow(LAYERS, parts), OperatorGroups(LAYERS, spec.groups)
    found = chained_operators(spec, flow, groups)
    assert found == chained
    for name in found:
        (sender,) = flow.senders(name)
        assert groups.place_of(sender.name) == groups.place_of(name), "they are in one process"


def test_layers_with_one_task_alone_do_where_others_have_more() -> None:
    stage = {"layer_tasks": [[4], [4], [2, 2]]}
    spec = JobSpec(out="out", layers=LAYERS, parts=4, stage=stage, parallelism=2, layer_parallelism=(1, 2))
    assert chained_operators(spec, Dataflow(LAYERS, 4), spec.operators) == {FEATURES, "tail1"}
