import random

import pytest

from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, TAIL, Dataflow, LayerTasks, Place, rank


def test_who_receives() -> None:
    flow = Dataflow(layers=3, parts=2)
    assert flow.receiver(PARTITIONER, STORAGE) == "storage0"
    assert flow.receiver("storage0", STORAGE) == "storage1"
    assert flow.receiver("storage2", TAIL) == "tail2"
    assert flow.receiver("tail2", STORAGE) == "storage3"
    assert flow.receiver("tail3", SINK) == SINK


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (1, {"storage0": 1, "storage1": 1, "storage2": 1, SINK: 1}),
        (3, {"storage0": 1, "storage1": 3, "tail1": 3, "storage2": 6, "tail2": 3, SINK: 6}),
    ],
)
def test_how_many_blocks_an_epoch_brings(parts: int, expected: dict[str, int]) -> None:
    flow = Dataflow(2, parts)
    assert {row.name: flow.blocks_per_epoch(row.name) for row in flow.staged} == expected


def test_layers_may_have_their_own_tasks() -> None:
    flow = Dataflow(3, 4, tasks=LayerTasks.of_counts(4, by_layer=[[4], [4], [2, 2], [1, 1, 1, 1]]))
    assert {row.name: row.tasks for row in flow.staged} == {
        **{"storage0": 1, "storage1": 1, "tail1": 1, "storage2": 2, "tail2": 2, "storage3": 4, "tail3": 4, SINK: 4}
    }
    assert [flow.blocks_per_epoch(name) for name in ("storage2", "storage3", "tail3", SINK)] == [2, 4, 4, 8]
    alike = LayerTasks.of_counts(4, [3, 1])
    assert {alike.of(name).counts for name in ("storage0", "storage7", "tail2", SINK)} == {(3, 1)}
    assert alike.of(PARTITIONER).counts == (1, 1, 1, 1)


def test_every_topic_has_a_parser_and_senders_mirror_receivers() -> None:
    flow = Dataflow(2, 3, topics={1: 1, 4: 2})
    assert [row.name for row in flow.senders(PARTITIONER)] == ["parser", "parser-1", "parser-4"]
    assert [(flow[name].topic, flow[name].tasks) for name in list(flow)[:3]] == [(None, 1), (1, 1), (4, 2)]
    pairs = {(sender.name, name) for name in flow for sender in flow.senders(name)}
    assert pairs == {(row.name, to) for row in flow.values() for to in row.receivers.values()}


def test_a_place_is_called_by_operator_and_part() -> None:
    assert [str(place) for place in Dataflow(1, 2)["tail1"].places] == ["tail1-0", "tail1-1"]
    assert Place(SINK, 0) == (SINK, 0)


def test_names_alone_tell_the_order_of_the_flow() -> None:
    names = list(Dataflow(11, 2, topics={0: 1}))
    mixed = random.Random(1).sample(names, len(names))
    assert sorted(sorted(mixed), key=rank) == names
    assert sorted(["stranger", SINK, "parser-3"], key=rank) == ["parser-3", SINK, "stranger"]
