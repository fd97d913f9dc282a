"""How processes share a job's operators: groups of neighbours, in the order of the flow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.gnn.model import MAX_CONVS
from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import flink_options
from freshet.job.flink.pipeline import OperatorGroups, division_of, groups_max, pipeline_of, processes_of, subtasks_of
from freshet.operators.dataflow import FEATURES, PARTITIONER, SINK, Dataflow


@given(st.integers(1, MAX_CONVS), st.integers(1, 4), st.data())
def test_groups_are_neighbours_in_the_order_of_the_flow(layers: int, parts: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, groups_max(layers)))
    pipeline, flow = OperatorGroups(layers, groups), Dataflow(layers, parts)
    found = [pipeline.group_of(name) for name in flow]
    assert found == sorted(found), "no message goes back"
    assert set(found) == set(range(groups)), "each group has something to do"
    assert pipeline.group_of(PARTITIONER) == pipeline.group_of(FEATURES) == 0, "these two may be one task"
    first = [name for name in flow if pipeline.group_of(name) == 0 and not name.startswith("tail")]
    assert pipeline.last_of_first == first[-1]
    assert {pipeline.place_of(name)[1] for name in flow} == {None}
    assert len({pipeline.place_of(name) for name in flow}) == groups
    assert pipeline.words(1).count(";") == groups - 1


def test_groups_have_about_the_same_to_do() -> None:
    assert OperatorGroups(2, 2).words(1) == "2 processes share the layers: parser to storage1; storage2 to sink"
    assert (
        OperatorGroups(2, 3).words(1) == "3 processes share the layers: parser to storage0; storage1; storage2 to sink"
    )
    of_each = "3 processes share the layers, 2 of each: parser to storage0; storage1; sink"
    assert OperatorGroups(1, 3).words(2) == of_each
    assert OperatorGroups(4, 2).group_of("tail2") == 0
    assert OperatorGroups(4, 2).group_of("storage3") == OperatorGroups(4, 2).group_of(SINK) == 1


@pytest.mark.parametrize(
    ("parallelism", "layers", "groups"),
    [(1, 2, 1), (2, 2, 2), (3, 2, 3), (4, 2, 4), (5, 2, 1), (6, 2, 3), (8, 2, 4), (16, 2, 4), (7, 5, 7), (2, 1, 2)],
)
def test_by_default_as_many_share_the_layers_as_go_into_the_parallelism(
    parallelism: int, layers: int, groups: int
) -> None:
    assert pipeline_of(parallelism, None, layers, parts=parallelism) == groups


def test_what_is_given_must_fit() -> None:
    assert pipeline_of(4, 2, layers=2, parts=2) == 2
    assert pipeline_of(4, 1, layers=2, parts=4) == 1
    with pytest.raises(UsageError, match="--pipeline 3: expected a divisor of --parallelism 4"):
        pipeline_of(4, 3, layers=2, parts=4)
    with pytest.raises(UsageError, match="--pipeline 4: the model has 1 convs, which at most 3 processes share"):
        pipeline_of(4, 4, layers=1, parts=4)
    with pytest.raises(UsageError, match="2 subtasks, and the job has 1 parts; give --parallelism 2 or lower"):
        pipeline_of(4, 2, layers=2, parts=1)


def test_each_layer_has_its_own_subtasks() -> None:
    assert [subtasks_of(name, (1, 2, 4)) for name in Dataflow(3, 4)] == [1, 1, 1, 1, 1, 2, 2, 4, 4, 4]
    assert division_of(1, None, (1, 2, 4), 3, 4).words() == "4 processes: layer 1 has 1; layer 2 has 2; layer 3 has 4"


@pytest.mark.parametrize(
    ("parallelism", "pipeline", "by_layer", "groups", "slots"),
    [
        (1, None, (1, 2, 4), 1, [4]),  # as many as the largest layer: groups share slots
        (4, None, (1, 2, 4), 1, [4]),
        (5, None, (1, 2, 4), 2, [1, 4]),
        (6, None, (1, 2, 4), 3, [1, 1, 4]),
        (7, None, (1, 2, 4), 3, [1, 1, 4]),  # one is not needed
        (8, None, (1, 2, 4), 4, [1, 1, 2, 4]),
        (1, 3, (1, 2, 4), 3, [1, 1, 4]),  # as many as these take
        (1, 5, (1, 2, 4), 5, [1, 1, 2, 4, 4]),
        (1, None, (4, 2, 1), 1, [4]),
        (3, None, (1, 1, 1), 3, [1, 1, 1]),
    ],
)
def test_layers_are_shared_by_as_many_groups_as_there_are_slots_for(
    parallelism: int, pipeline: int | None, by_layer: tuple[int, ...], groups: int, slots: list[int]
) -> None:
    division = division_of(parallelism, pipeline, by_layer, 3, 4)
    assert (division.groups, division.operators.slots, division.processes) == (groups, slots, sum(slots))
    assert division.idle == (parallelism - sum(slots) if parallelism > 1 else 0)
    assert processes_of(parallelism, pipeline, by_layer) == sum(slots)
    assert processes_of(parallelism, pipeline, None) == parallelism
    shape = {"parallelism": sum(slots), "pipeline": groups, "layer_parallelism": by_layer, "parts": 4}
    spec = JobSpec.model_validate({"out": "out", "layers": 3, **shape})
    assert (spec.groups, spec.by_layer, spec.first_slots) == (groups, by_layer, slots[0])
    assert (spec.slots_of_cluster, spec.slots_of_process) == (sum(slots), 1)
    more = spec.model_copy(update={"topic_readers": (slots[0] + 2,)})
    assert more.slots_of_cluster == sum(slots) + 2
    assert more.slots_of_process * sum(slots) >= more.slots_of_cluster
    assert more.groups_with_readers == 0


def test_the_layer_beside_the_partitioner_in_every_slot_reports_progress() -> None:
    assert division_of(1, None, (1, 2, 4), 3, 4).operators.last_of_first == SINK
    assert division_of(1, None, (4, 2, 1), 3, 4).operators.last_of_first == "storage1"
    assert division_of(5, None, (1, 2, 4), 3, 4).operators.last_of_first == "storage0"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((1, None, (1, 2)), "--layer-parallelism 1,2: got 2 numbers, and the model has 3 layers; give one for each"),
        ((1, None, (1, 2, 5)), "layer 3 would have 5 processes, and the job has 4 parts; give at most that"),
        ((3, None, (1, 2, 4)), "--parallelism 3: --layer-parallelism 1,2,4 takes 4 processes; give as many"),
        ((5, 3, (1, 2, 4)), "--parallelism 5: --layer-parallelism 1,2,4 with --pipeline 3 takes 6 processes"),
        ((1, 6, (1, 2, 4)), "--pipeline 6: the model has 3 convs, which at most 5 processes share"),
    ],
)
def test_numbers_of_layers_must_fit(options: tuple[int, int | None, tuple[int, ...]], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        division_of(*options, layers=3, parts=4)
    with pytest.raises(UsageError, match="takes 320 processes, expected at most 128; give a lower --pipeline"):
        division_of(1, 3, (128, 64, 64), 3, 128)


def test_groups_that_run_beside_readers_share_slots_and_stay_together() -> None:
    """An operator has slots of one name only; a co-location group keeps the others of its group in the same ones."""
    pipeline = OperatorGroups(2, 3, with_readers=2)
    assert pipeline.place_of("parser-0") == pipeline.place_of(FEATURES) == ("default", "group-0")
    assert pipeline.place_of("storage1") == ("default", "group-1")
    assert pipeline.place_of(SINK) == ("pipeline-2", None)


@pytest.mark.parametrize(
    ("parallelism", "pipeline", "readers", "groups", "slots"),
    [
        (1, 1, (), 0, 1),
        (1, 1, (1, 3), 0, 3),  # one process has as many slots
        (2, 1, (2,), 0, 1),  # beside the two subtasks of each layer
        (2, 2, (2,), 2, 1),
        (2, 1, (3,), 1, 2),
        (4, 4, (2,), 2, 1),
        (4, 2, (4, 1), 2, 1),
        (2, 2, (5,), 2, 3),
    ],
)
def test_readers_run_in_the_processes_that_the_layers_have(
    parallelism: int, pipeline: int, readers: tuple[int, ...], groups: int, slots: int
) -> None:
    shape = {"parallelism": parallelism, "pipeline": pipeline, "parts": 4, "topic_readers": readers}
    spec = JobSpec.model_validate({"out": "out", "layers": 2, **shape})
    assert (spec.groups_with_readers, spec.slots_of_process) == (groups, slots)
    options = flink_options(spec)
    assert options["taskmanager.numberOfTaskSlots"] == str(slots)
    assert (options.get("taskmanager.load-balance.mode") == "TASKS") == (groups > 0)
    with_one = flink_options(spec.model_copy(update={"topic_readers": ()}))
    per_slot = [int(one["taskmanager.memory.managed.size"].removesuffix("m")) for one in (options, with_one)]
    assert per_slot[0] // slots == per_slot[1], "the layers have no less of it"
    assert spec.model_copy(update={"cluster": "h:1"}).groups_with_readers == 0
