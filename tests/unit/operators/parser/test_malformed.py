"""Each way to be wrong by itself, and the checks of the bad-input test: what they must notice, they notice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.messages import RawMessage
from freshet.operators.parser.rejects import Refusals
from freshet.operators.sink.change_log_reader import Positions
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.drills.bad_letters import REASON_LENGTH, Letters, judge
from tests.drills.bad_stream import NOTHING, Bad, BadStream, Message, Place, TooFewError, digest_of, ways_for
from tests.drills.job_watch import states_in_log
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import IN_WIDTH
from tests.support.graphs.plain_graph import replay
from tests.support.malformed.arrow import rows_to_ipc
from tests.support.malformed.records import FLOOD, ROW, Way, all_ways, edge_event, vertex_event

SOURCE = "kafka://localhost:9092/events"
ORIGIN = Origin(1, SOURCE, 2)
GOOD = b'{"op":"del_vertex","id":1}'
FEATURES = Features(IN_WIDTH, EDGE_WIDTH)


@pytest.mark.parametrize("way", all_ways(), ids=lambda way: way.name)
def test_a_malformed_record_is_rejected_alone_and_for_the_true_reason(way: Way) -> None:
    for seed in range(1 if way.heavy else 20):
        rng = random.Random(seed)
        made = way.make(rng)
        value = rows_to_ipc([edge_event(rng), made, vertex_event(rng)]) if way.kind == ROW else made
        value, records = made if way.kind == FLOOD else (value, 1)
        messages = [RawMessage(3, GOOD), RawMessage(4, value), RawMessage(5, GOOD)]
        events, letters = Parser(FEATURES, "int").parse_messages(messages, ORIGIN)
        assert events.position.tolist() == ([4, 5, 5, 6] if way.kind == ROW else [4, 6]), f"seed {seed}"
        assert {(one.source, one.partition, one.offset) for one in letters} == {(SOURCE, 2, 4)}, f"seed {seed}"
        assert sum(one.records for one in letters) == records, f"seed {seed}"
        assert len(letters) == min(records, 1_001)
        assert all(word in letters[0].error for word in way.words), (letters[0].error, seed)
        assert len(letters[0].error) <= REASON_LENGTH
        if way.kind not in (ROW, FLOOD) and way.known_raw:
            assert letters[0].raw == (made or b""), f"seed {seed}"


def test_what_the_partitioner_refuses_is_judged_too() -> None:
    message = list(BadStream(2_000, 0.1, seed=3, refused=True).messages())[-1]
    events, letters = Parser(FEATURES, "int").parse_messages([RawMessage(0, message.value)], ORIGIN._replace(source=0))
    core = Partitioner(2, FEATURES)
    refused = list(Refusals([SOURCE], lambda *_: None).letters(events, core.partition(events).rejected))
    found = judge((letter.to_json() for letter in refused), {(2, 0): message.bad}, SOURCE)
    assert not letters and not any(found.wrong.values()), found.notes
    assert found.right == len(message.bad) > 100
    assert len(events) == len(message.good)
    assert message.good.count(NOTHING) == len(message.bad)
    assert core.edges == len({orjson.loads(line)["src"] for line in message.good if line != NOTHING})


def test_a_model_that_reads_no_attributes_has_them_be_of_one_width() -> None:
    widths = (None, 2, 1, 2, 0, 3, None)
    records = [edge_event(random.Random(k)) | ({} if n is None else {"attr": [k] * n}) for k, n in enumerate(widths)]
    lines = b"\n".join(map(orjson.dumps, records))
    events, letters = Parser(Features(IN_WIDTH)).parse_messages([RawMessage(0, lines)], ORIGIN._replace(source=0))
    rejected = Partitioner(2, Features(IN_WIDTH)).partition(events).rejected
    refused = Refusals([SOURCE], lambda *_: None).letters(events, rejected)
    said = "attr: expected 2 numbers, as the job's first edge with attr has, got {}"
    ends = [(said.format(widths[k]), records[k]["src"], records[k]["dst"]) for k in (2, 4, 5)]
    raws = [(one.error, orjson.loads(one.raw)) for one in refused]
    assert not letters and [(error, raw["src"], raw["dst"]) for error, raw in raws] == ends
    assert all("attr" not in raw for _, raw in raws)


def test_the_rest_of_a_flood_is_judged_by_its_number(messages: list[Message]) -> None:
    way = next(way for way in all_ways() if way.name == "lines of a letter")
    value, records = way.make(random.Random(1))
    bad = [*[Bad(way, None)] * 1000, Bad(way, None, records - 1000)]
    _, letters = Parser(FEATURES, "int").parse_messages([RawMessage(0, value)], ORIGIN)
    found = judged({(2, 0): bad}, letters)
    assert (found.right, any(found.wrong.values())) == (records, False)
    wrong = judged({(2, 0): bad}, [*letters[:-1], letters[-1]._replace(records=records)])
    assert wrong.missing == 1 and wrong.right == 1000


def parsed(messages: list[Message]) -> tuple[dict[Place, list[Bad]], list[DeadLetter], int]:
    """What is wrong in the messages of partition 2, their letters, and how many events there are."""
    raw = [RawMessage(k, message.value) for k, message in enumerate(messages)]
    events, letters = Parser(FEATURES, "int").parse_messages(raw, ORIGIN)
    expected = {(2, k): message.bad for k, message in enumerate(messages) if message.bad}
    return expected, letters, len(events)


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    """A stream as the test sends it, without what is large."""
    found = list(BadStream(2_000, 0.1, seed=3).messages())
    return [one for one in found if not any(bad.way.heavy for bad in one.bad)]


def judged(expected: dict[Place, list[Bad]], letters: list[DeadLetter]) -> Letters:
    return judge((letter.to_json() for letter in letters), expected, SOURCE)


def test_the_stream_holds_what_it_says(messages: list[Message]) -> None:
    expected, letters, events = parsed(messages)
    found = judged(expected, letters)
    light = [way for way in all_ways() if not way.heavy]
    assert events == sum(len(message.good) for message in messages) > 1_700
    assert not any(found.wrong.values()), found.notes
    assert found.right == len(letters) == sum(len(bad) for bad in expected.values())
    assert found.counts.keys() == {way.name for way in light}
    together = [message for message in messages if message.bad and len(message.good) + len(message.bad) > 1]
    assert len(together) > 20, "bad records among good ones, in one message"
    assert any(len(message.bad) > 1 for message in messages)


def test_the_seed_draws_the_stream() -> None:
    values = [[one.value for one in BadStream(1_000, 0.2, seed).messages()] for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_every_way_is_drawn_and_heavy_ones_seldom() -> None:
    ways = all_ways()
    counts = Counter(way.name for way in ways_for(20_000, random.Random(1), ways))
    assert len(counts) == len(ways) >= 30
    assert {counts[way.name] for way in ways if way.heavy} == {20}
    assert min(counts[way.name] for way in ways if not way.heavy) > 150
    with pytest.raises(TooFewError, match="got 50"):
        ways_for(50, random.Random(1), ways)


CHANGES: dict[str, Any] = {
    "missing": lambda letters: letters[1:],
    "repeated": lambda letters: [*letters, letters[0]],
    "unknown": lambda letters: [*letters, letters[0]._replace(offset=10**6)],
    "altered": lambda letters: [*letters, letters[0]._replace(raw=b"{}")],
    "misplaced": lambda letters: [letters[0]._replace(source="kafka://localhost:9092/other"), *letters[1:]],
    "untrue": lambda letters: [letters[0]._replace(error="I did not like it"), *letters[1:]],
}


@pytest.mark.parametrize("wrong", CHANGES)
def test_a_wrong_letter_is_noticed(messages: list[Message], wrong: str) -> None:
    expected, letters, _ = parsed(messages)
    found = judged(expected, CHANGES[wrong](letters))
    assert found.wrong[wrong] == 1
    assert {name for name, count in found.wrong.items() if count} <= {wrong, "missing"}
    assert found.notes


def test_letters_of_one_message_are_told_apart() -> None:
    ways = {way.name: way for way in all_ways()}
    no_op, no_src = ways["no op"], ways["no src"]
    raw = [no_op.make(random.Random(1)), no_src.make(random.Random(1)), no_op.make(random.Random(2))]
    expected = {(2, 0): [Bad(way, digest_of(one, way)) for way, one in zip((no_op, no_src, no_op), raw, strict=True)]}
    _, letters = Parser(FEATURES, "int").parse_messages([RawMessage(0, b"\n".join([*raw, GOOD]))], ORIGIN)
    assert judged(expected, letters).right == 3
    swapped = [letters[0]._replace(error=letters[1].error), letters[1]._replace(error=letters[0].error), letters[2]]
    assert judged(expected, swapped).untrue == 2


def positions(rows: list[tuple[int, int, int]]) -> Positions:
    """Of (epoch, partition, events)."""
    epoch, partition, events = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Positions(epoch, np.full(len(rows), SOURCE, object), partition, np.zeros(len(rows), np.int64), events)


def edges_of(graph: ReferenceGraph) -> dict[tuple[Any, Any], float]:
    ids, _, src, dst, values = graph.arrays()
    ends = zip(src.tolist(), dst.tolist(), strict=True)
    return {(ids[a], ids[b]): w for (a, b), w in zip(ends, values.weight.tolist(), strict=True)}


def test_good_events_are_replayed_in_the_order_of_the_epochs() -> None:
    def events(*records: dict[str, Any]) -> list[bytes]:
        return [orjson.dumps(record) for record in records]

    good = [
        events({"op": "add_edge", "src": 1, "dst": 2}, {"op": "add_edge", "src": 2, "dst": 2, "weight": 0.5}),
        events({"op": "del_vertex", "id": 1}, {"op": "set_features", "id": 2, "x": [7.0]}),
        events({"op": "del_edge", "src": 2, "dst": 2}, {"op": "add_edge", "src": 1, "dst": 3, "weight": 2.0}),
    ]
    graph, count = replay(good, positions([(1, 0, 1), (1, 1, 1), (2, 0, 1), (2, 1, 1), (3, 2, 2)]), Features(1))
    assert count == 6
    assert dict(zip(graph.arrays().ids, graph.arrays().x[:, 0].tolist(), strict=True)) == {2: 7.0, 1: 0.0, 3: 0.0}
    assert edges_of(graph) == {(1, 3): 2.0}
    graph, _ = replay(good, positions([(1, 1, 2), (2, 2, 2), (3, 0, 2)]), Features(1))
    assert edges_of(graph) == {(1, 3): 2.0, (1, 2): 1.0, (2, 2): 0.5}
    with pytest.raises(AssertionError, match="the epochs took"):
        replay(good, positions([(1, 0, 2), (2, 1, 2), (3, 2, 1)]), Features(1))


def test_a_restart_stands_in_the_log(tmp_path: Any) -> None:
    line = "2026-11-21 12:58:42,365 INFO  ExecutionGraph   Job freshet (686f4a30) switched from state {} to {}.\n"
    quiet = line.format("CREATED", "RUNNING") + "something else\n" + line.format("RUNNING", "FINISHED")
    (tmp_path / "flink.log").write_text(quiet)
    assert states_in_log(tmp_path) == ["CREATED", "RUNNING", "FINISHED"]
    (tmp_path / "flink.log.1").write_text(line.format("CREATED", "RUNNING") + line.format("RUNNING", "RESTARTING"))
    (tmp_path / "flink.log").write_text(line.format("RESTARTING", "RUNNING"))
    assert states_in_log(tmp_path) == ["CREATED", "RUNNING", "RESTARTING", "RUNNING"]


def test_a_refused_event_is_shown_without_the_columns_of_its_type() -> None:
    features = Features(IN_WIDTH, EDGE_WIDTH + 2, types=2)
    parser = Parser(features, "int", ["a", "b"])
    record = edge_event(random.Random(1)) | {"op": "add_edge", "type": "b", "attr": [0.5] * EDGE_WIDTH, "ts": 10**12}
    near = {"op": "add_vertex", "id": 9, "ts": 0}
    core = Partitioner(1, features, PartitionerConfig(ts_jump_ms=1000, edge_types=("a", "b")))
    core.partition(parser.parse_jsonl(b"\n".join([orjson.dumps(near)] * 20), ORIGIN)[0])
    events, none = parser.parse_jsonl(b"\n".join(map(orjson.dumps, [record, *[near] * 9])), ORIGIN._replace(source=0))
    (letter,) = Refusals([SOURCE], lambda *_: None, features).letters(events, core.partition(events).rejected)
    assert (none, orjson.loads(letter.raw)["attr"]) == ([], [0.5] * EDGE_WIDTH)
    assert events.values.attr is not None and events.values.attr[0].tolist() == [0.0, 1.0, *[0.5] * EDGE_WIDTH]
