"""A table kept by a topic's records: the row with the greatest epoch holds, in whatever order records come again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import EmbeddingClient
from freshet.job.errors import UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.machine.ports import server_port
from freshet.job.serving.doors.flight_server import EmbeddingFlights
from freshet.job.serving.feeds import topic as topic_module
from freshet.job.serving.feeds.fed_job import FedJob, FedServers
from freshet.job.serving.feeds.topic import Topic
from freshet.job.serving.feeds.topic_follower import TopicFollower
from freshet.job.serving.feeds.topic_reader import OffsetsGoneError
from freshet.job.serving.feeds.topic_records import Kind, Record, rows_of_records
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import ROW
from freshet.job.serving.tables import place
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.nearest import Vector, Wish, neighbours_of
from freshet.job.serving.tables.served import CurrentTable
from freshet.operators.record_blocks import TopicMark
from freshet.operators.sink.coalesce import Changes, TextIds
from freshet.operators.sink.kafka_records import FORMS, RecordBlocks
from freshet.state.served.layout import T_BEAT_US
from tests.support.kafka.records import split_epochs

WIDTH = 3
JOB_ID = f"f{os.getpid():015x}"
MODEL = "00112233aabb"
KIND = Kind(False, WIDTH, MODEL)


def records(*changes: tuple[int, int, float | None], strings: bool = False, form: str = "base64") -> list[Record]:
    """As the job writes them: (vertex, epoch, first value, None for a deletion)."""
    ids, epochs, values = (list(column) for column in zip(*changes, strict=True))
    gone = np.array([value is None for value in values])
    rows = np.array([[value or 0.0, one, 0.1] for one, value in zip(ids, values, strict=True)], np.float32)
    names = [f"v{one}".encode() for one in ids]
    text = TextIds(np.cumsum([0, *map(len, names)]).astype(np.int64), np.frombuffer(b"".join(names), np.uint8).copy())
    put = Changes(text if strings else np.array(ids, np.int64), np.array(epochs, np.int64), gone, rows)
    found = [one for block in RecordBlocks(MODEL, form).blocks(put) for one in split_epochs(block)]
    return [Record(key, value, () if epoch is None else (("epoch", b"%d" % epoch),)) for key, value, epoch in found]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strings", [False, True])
def test_all_formats_and_kinds_of_ids(form, strings):
    given_ = records((7, 1, 0.5), (-8, 2, float("nan")), (9, 3, None), strings=strings, form=form)
    kind = Kind.of(given_[0])
    assert kind == Kind(strings, WIDTH, MODEL)
    assert Kind.of(given_[2]) is None
    found, refused = rows_of_records(given_, kind)
    ids = found.ids.decode() if strings else found.ids.tolist()
    assert ids == (["v7", "v-8"] if strings else [7, -8])
    assert found.epochs.tolist() == [1, 2]
    assert np.array_equal(found.rows, np.array([[0.5, 7, 0.1], [np.nan, -8, 0.1]], np.float32), equal_nan=True)
    assert (found.dead_epochs.tolist(), found.newest, refused) == ([3], 3, [])


def test_within_a_batch_the_greatest_epoch_holds():
    found, _ = rows_of_records(
        records((1, 5, 5.0), (1, 1, 1.0), (2, 3, 3.0), (2, 2, None), (3, 4, None), (3, 4, 4.0)), KIND
    )
    assert (found.ids.tolist(), found.epochs.tolist()) == ([1, 2, 3], [5, 3, 4])
    assert found.rows[:, 0].tolist() == [5.0, 3.0, 4.0]


def test_records_of_nobody_are_left_out_with_the_reason():
    good = records((7, 1, 0.5))
    value, binary = orjson.loads(good[0].value), records((7, 1, 0.5), form="binary")[0].value
    wrong = {
        "expected JSON": Record(b"1", b"{"),
        "JSON object": Record(b"1", b"[1]"),
        "key: expected an integer": Record(b"x", good[0].value),
        "got b'1_0'": Record(b"1_0", None, (("epoch", b"9"),)),
        "got b' 7 '": Record(b" 7 ", None, (("epoch", b"9"),)),
        "got b'07'": Record(b"07", None),
        "got b'-0'": Record(b"-0", None),
        "got None": Record(None, good[0].value),
        "that of the key": Record(b"8", good[0].value),
        "another model": Record(b"7", orjson.dumps(value | {"model": "m1"})),
        "epoch: expected": Record(b"7", orjson.dumps(value | {"epoch": True})),
        "epoch: expected an integer from 0": Record(b"7", orjson.dumps(value | {"epoch": 2**63})),
        "got 'True'": Record(b"1", orjson.dumps(value | {"id": True})),
        "embedding: expected 3 numbers": Record(b"7", orjson.dumps(value | {"embedding": [1.0]})),
        "base64": Record(b"7", orjson.dumps(value | {"embedding": "?"})),
        "list of numbers, got '[1": Record(b"7", orjson.dumps(value | {"embedding": [10**18, 1e300, None, {}]})),
        "list of numbers": Record(b"7", orjson.dumps(value | {"embedding": [[1], 2, 3]})),
        "expected numbers of float32, got 1e+39": Record(b"7", orjson.dumps(value | {"embedding": [0, 1e39, 0]})),
        "expected numbers of float32, got -3.5e+38": Record(b"7", orjson.dumps(value | {"embedding": [-3.5e38, 0, 0]})),
        "value: expected a head of 16 bytes and float32, got 15": Record(b"7", binary[:15]),
        "value: expected a head of 16 bytes and float32, got 18": Record(b"7", binary[:18]),
        "value: expected 0 or 1 in byte 7, got 2": Record(b"7", binary[:7] + b"\2" + binary[8:]),
        "ids: expected integer ids, got a value of a graph with string ids": Record(
            b"7", binary[:7] + b"\1" + binary[8:]
        ),
        "model: expected 00112233aabb, got '10112233aabb'": Record(b"7", binary[:1] + b"\x10" + binary[2:]),
        "epoch: expected an integer from 0 to": Record(b"7", binary[:15] + b"\xff" + binary[16:]),
        "embedding: expected 3 numbers, got 2": Record(b"7", binary[:-4]),
        "header epoch": Record(b"7", None, (("epoch", b"-1"),)),
        "header epoch: expected a number from 0 on, got None": Record(b"7", None),
    }
    found, refused = rows_of_records([*wrong.values(), *good], KIND)
    assert found.ids.tolist() == [7]
    for reason, told in zip(wrong, refused, strict=True):
        assert reason in told


integers = st.integers(-(2**63), 2**64 - 1)
scalars = st.none() | st.booleans() | integers | st.floats() | st.text(max_size=6)
values = scalars | st.lists(scalars, max_size=4) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)
fields = st.fixed_dictionaries({}, optional=dict.fromkeys(["id", "epoch", "model", "embedding"], values))
raw_keys = st.none() | st.binary(max_size=4) | st.sampled_from([b"7", b"1_0", b" 7 ", b"\xd9\xa3", b"9" * 30])
raw_headers = st.lists(st.tuples(st.sampled_from(["epoch", "x"]), st.binary(max_size=20)), max_size=2)


@settings(deadline=None)
@given(raw_keys, st.none() | st.binary(max_size=8) | st.binary(max_size=40).map(b"\1".__add__), fields, raw_headers)
def test_any_record_is_a_row_or_left_out_with_the_reason(key, value, changed, headers):
    good = records((7, 1, 0.5))[0]
    mixed = orjson.dumps(orjson.loads(good.value) | changed)
    given_ = [Record(key, value, headers), Record(key, mixed, headers), Record(b"7", mixed, headers), good]
    for record in given_:
        kind = Kind.of(record)
        assert kind is None or 0 < kind.width <= 2**16
    found, refused = rows_of_records(given_, KIND)
    assert len(found.ids) + len(found.dead) + len(refused) <= len(given_)
    assert 7 in [*found.ids.tolist(), *found.dead.tolist()]
    assert 0 <= found.newest <= 2**62


@pytest.mark.parametrize(
    ("mark", "config", "kind", "lacks"),
    [
        (TopicMark("j", has_all=True, kind="user"), {"cleanup.policy": "compact"}, "user", []),
        (TopicMark("j", has_all=False), {"cleanup.policy": "compact"}, "", ["embeddings-from-start"]),
        (None, {"cleanup.policy": "compact"}, "", []),
        (None, {"cleanup.policy": "compact,delete", "retention.ms": "60000"}, "", ["compact,delete"]),
        (None, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, "", []),
        (TopicMark("j", has_all=False), {}, "", ["embeddings-from-start", "cleanup.policy=delete"]),
    ],
)
def test_what_a_topic_says_of_its_rows(
    mark: TopicMark | None, config: dict[str, str], kind: str, lacks: list[str], monkeypatch, tmp_path, capsys
) -> None:
    script = Script()
    [row] = records((7, 1, 0.5))
    script.batches = [[row._replace(headers=[] if mark is None else [("job", mark.encode())])]]

    class Admin:
        def describe_configs(self, _: Any, config_filter: str) -> Any:
            assert config_filter == "all"
            return {"topic": {"t": {name: {"value": value} for name, value in config.items()}}}

    monkeypatch.setattr(topic_module, "await_brokers", lambda *_: None)
    monkeypatch.setattr(topic_module, "admin_client", lambda *_: nullcontext(Admin()))
    monkeypatch.setattr(Topic, "read", lambda *_: SimpleNamespace(read=script.read, close=script.close, id=JOB_ID))
    topic = Topic(KafkaAddress("b:1", "t"), ClientProperties())
    job = topic.job(tmp_path / "tables", lambda: False, 60.0)
    assert (job.kind_name, bool(job.lacks)) == (kind, bool(lacks))
    assert all(one in job.lacks for one in lacks)
    assert job.lacks in capsys.readouterr().err
    assert FedJob.recorded(tmp_path / "tables") == job


class Script:
    """A topic whose records come as a test says."""

    def __init__(self) -> None:
        self.batches: list[list[Record] | Exception] = []
        self.offsets, self.heard_us, self.newest_ms, self.caught_up, self.closed = {0: 0}, 0, 1, True, 0
        self.begun: list[dict[int, int]] = []
        self.asked: list[str] = []
        self.id = JOB_ID

    def read(self, what: Any, id_: str = "") -> Any:
        if isinstance(what, dict):
            self.begun.append(what)
            self.asked.append(id_)
            return self
        self.heard_us = time.time_ns() // 1000
        found = self.batches.pop(0) if self.batches else []
        if isinstance(found, Exception):
            raise found
        self.offsets[0] += len(found)
        return found

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(params=[False, True], ids=["int", "string"])
def strings(request) -> bool:
    return bool(request.param)


@pytest.fixture
def script(tmp_path, strings) -> Iterator[tuple[Script, FedJob, Path]]:
    told = {"job_id": JOB_ID, "strings": strings, "width": WIDTH, "model": MODEL, "sources": ["kafka://b:1/t"]}
    job = FedJob.write(told | {"consistency": ROW, "lacks": "only changes"}, tmp_path / "T" / "tables")
    yield Script(), job, tmp_path / "T" / "tables"
    for path in place.SHM.glob(f"freshet-{JOB_ID}-*"):
        path.unlink()


def following(script: Script, job: FedJob, tables: Path) -> TopicFollower:
    follower = TopicFollower(job, tables, script, lambda: False, 1 << 20)  # type: ignore[arg-type]
    follower.start()
    return follower


def rows_in(tables: Path) -> dict[int, tuple[int, float]]:
    ids, found = CurrentTable(tables).served().table.all()
    names = [int(one[1:]) for one in ids.decode()] if hasattr(ids, "decode") else ids.tolist()
    return {id_: (own, row[0]) for id_, own, row in zip(names, found.own.tolist(), found.rows.tolist(), strict=True)}


def test_the_greatest_epoch_holds(script, strings):
    topic, _job, tables = script
    first = [(1, 0, 1.0), (2, 0, 2.0), (3, 4, 3.0), (1, 5, 5.0)]
    topic.batches = [records(*first, strings=strings)]
    follower = following(*script)
    expected = {1: (5, 5.0), 2: (0, 2.0), 3: (4, 3.0)}
    assert rows_in(tables) == expected
    again = [*first, (2, 6, None), (2, 3, 9.0), (3, 2, None), (1, 5, None)]
    for change in again:  # each for itself: a row, or a tombstone, that is older hides nothing
        topic.batches = [records(change, strings=strings)]
        assert follower.step()
    del expected[2]
    assert rows_in(tables) == expected
    many = [(key, 7, float(key)) for key in range(100, 4000)]
    topic.batches = [records(*many, strings=strings), records((2, 3, 9.0), strings=strings)]
    former = follower.table.path
    while follower.step():
        pass
    assert follower.table.path != former, "it has grown"
    expected |= {key: (7, float(key)) for key in range(100, 4000)}
    assert rows_in(tables) == expected, "and knows of deletions still"
    follower.close(forget=True)


def test_killed_made_anew_and_too_old(script, strings):
    topic, _job, tables = script
    topic.batches = [records((1, 1, 1.0), (2, 1, 2.0), strings=strings)]
    follower = following(*script)
    follower.close(forget=False)
    topic.batches = [records((2, 2, 2.5), strings=strings)]
    again = following(*script)
    assert again.taken_over
    while again.step():
        pass
    assert topic.begun == [{}, {0: 2}], "it goes on behind what it had read"
    assert topic.asked == [JOB_ID, JOB_ID], "of the topic that these offsets are of"
    assert rows_in(tables) == {1: (1, 1.0), 2: (2, 2.5)}
    topic.batches = [OffsetsGoneError("gone"), records((3, 0, 3.0), strings=strings)]
    again.run(lambda: not topic.batches)
    assert topic.begun[-1] == {}
    assert rows_in(tables) == {3: (0, 3.0)}, "a topic that was made anew is read anew"
    again.table.mem[T_BEAT_US] -= 7200 * 10**6
    again.close(forget=False)
    topic.batches = [records((4, 0, 4.0), strings=strings)]
    last = following(*script)
    assert not last.taken_over
    assert rows_in(tables) == {4: (0, 4.0)}, "tombstones may have gone meanwhile"
    last.close(forget=True)


ops = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(ops, st.data())
def test_what_comes_again_changes_nothing(changes, data):
    """A partition's records, with stretches that come again, in batches of any size."""
    log = [(vertex, epoch, float(epoch) if lives else None) for epoch, (vertex, lives) in enumerate(changes, 1)]
    sent: list[tuple[int, int, float | None]] = []
    for end in range(1, len(log) + 1):
        sent.append(log[end - 1])
        if data.draw(st.booleans()):
            sent += log[data.draw(st.integers(0, end)) : end]
    table: dict[int, tuple[int, float | None]] = {}
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        batch, sent = sent[:size], sent[size:]
        found, _ = rows_of_records(records(*batch), KIND)
        newest = {id_: (epoch, row[0]) for id_, epoch, row in zip(found.ids, found.epochs, found.rows, strict=True)}
        newest |= {id_: (epoch, None) for id_, epoch in zip(found.dead, found.dead_epochs, strict=True)}
        table |= {id_: one for id_, one in newest.items() if id_ not in table or one[0] >= table[id_][0]}
    assert table == {vertex: (epoch, value) for vertex, epoch, value in log}


def test_what_answers_say(script, strings):
    topic, _, tables = script
    topic.batches = [records((1, 1, 1.0), (2, 3, 2.0), strings=strings)]
    follower = following(*script)
    lookup = Lookup(CurrentTable(tables))
    health = Health(lookup)
    assert health.figures()["lacks"] == "only changes"
    port = server_port()
    flights = EmbeddingFlights(f"grpc://127.0.0.1:{port}", lookup, health, None)
    one = "v1" if strings else 1
    for way in (f"127.0.0.1:{port}", tables):
        with EmbeddingClient(way, timeout=60) as client:
            for _ in range(2):
                table = client.get([one])
                assert table.schema.metadata == {b"epoch": b"3", b"consistency": b"row"}
                assert client.rows([one])[1].tolist() == [1]
            for asked in ({"min_epoch": 1}, {"min_position": {"0": 1}}):
                for call in (client.get, client.rows):
                    with pytest.raises(BadRequestError, match=r"Kafka topic, .* when an epoch is complete"):
                        call([one], **asked)
            follower.step()  # it tells that it lives: this process may have waited long for a core
            told = client.health()
            assert (told["consistency"], told["job"], told["ready"]) == ("row", "unknown", True)
            assert told["positions"][0]["next_offset"] == 2
    with pytest.raises(UsageError, match=r"no server answers .*give --kafka instead"):
        FedServers([f"127.0.0.1:{port}"], None).job(tables.parent / "other" / "tables", lambda: False, 0.1)
    flights.shutdown()
    follower.close(forget=True)


def test_neighbours_are_those_of_the_newest_rows(script, strings):
    """An epoch of a topic is never known to be complete: more of its rows come later."""
    topic, _, tables = script
    topic.batches = [records((1, 1, 1.0), (2, 3, 2.0), strings=strings)]
    follower = following(*script)
    lookup = Lookup(CurrentTable(tables))
    one = Vector(np.ones(lookup.table.width, np.float32))
    assert neighbours_of(lookup, one, Wish(3, "dot")).answer.epochs.tolist() == [3, 1]
    topic.batches = [records((1, 3, 5.0), (4, 3, 4.0), strings=strings)]
    while follower.step():
        pass
    answer = neighbours_of(lookup, one, Wish(3, "dot")).answer
    assert (answer.epoch, sorted(answer.rows[:, 0].tolist())) == (3, [2.0, 4.0, 5.0])
    follower.close(forget=True)


def test_a_topic_that_is_not_there(tmp_path):
    address = KafkaAddress(f"127.0.0.1:{server_port()}", "t")
    with pytest.raises(UsageError, match=r"--kafka .*: no broker is there"):
        Topic(address, ClientProperties({"request.timeout.ms": "1000"})).job(tmp_path / "tables", lambda: True, 0.0)
