"""Topics as they are found: compressed, read up to where they end, deleted and recreated; and that of a cut log."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from freshet.files.listing import paths_in
from freshet.job.dev.broker import Broker, start_broker
from freshet.job.errors import UsageError
from freshet.job.flink.checkpoints import complete_states
from freshet.job.folder.layout import topic_ended
from freshet.job.folder.run_file import read_run
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.cut_channel import PARTITION, KafkaChannel, open_channel
from freshet.job.kafka.cut_topic import CutTrimmer, address_of, check_cut_topic, copy_topic, make_cut_topic
from freshet.job.kafka.produce import produce
from freshet.job.lifecycle.summary import progress
from freshet.job.serving.feeds import topic_reader
from freshet.job.serving.feeds.topic_reader import OffsetsGoneError, TopicReader
from freshet.operators.epochs.cut import Cut
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import FencedError
from freshet.operators.epochs.cut_topic import CutTopic
from freshet.operators.epochs.retention import CLOCKS_MS
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.telemetry.positions import read_positions
from tests.support.graphs.attributed import EDGE_WIDTH, attending, gine
from tests.support.graphs.models import IN_WIDTH
from tests.support.kafka.codec_job import CODECS, DELIVERIES, RECORDS, topic_of
from tests.support.kafka.records import parse
from tests.support.kafka.topics import make_topic, read_topic, require_jars
from tests.support.runs.jobs import ROOT, Input, Job, TopicInput, make_input, read_log
from tests.support.stages.cuts import CUTS

pytestmark = pytest.mark.slow

BROKER_S = 300.0  # for its start, on a disk that is busy
BAD_ATTRS = [b"[1,2]", b"[]", b"[1,2,3,4]", b"[[1],[2],[3]]", b'["1","2","3"]', b'"1,2,3"', b"[NaN,1,2]", b"7"]
BAD_ATTRS += [b"[1,-Infinity,2]", b"[1e39,0,0]", b"[0,null,0]", b"[true,0,0]", b"{}"]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader in this process may wait long for a core, as its broker may."""
    monkeypatch.setattr(topic_reader, "ASK_S", 60.0)


def send(broker: Broker, topic: str, lines: Mapping[int, Sequence[bytes]], codec: str = "none") -> None:
    """Lines by partition to a topic that is there, a message each, in batches of this codec."""
    options = {"compression.type": codec, "linger.ms": 100, "partitioner": "murmur2_random"}
    producer = Producer({"bootstrap.servers": broker.address, **options})
    for partition, messages in lines.items():
        for line in messages:
            producer.produce(topic, line, partition=partition)
    assert producer.flush(60) == 0


def make_again(broker: Broker, topic: str, partitions: int = 1) -> None:
    """Delete a topic and make another one of its name."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        delete_topic(admin, topic)
    finally:
        admin.close()
    make_topic(broker, topic, partitions)


def delete_topic(admin: KafkaAdminClient, topic: str) -> None:
    """Delete a topic; the broker hears of it after the controller."""
    admin.delete_topics([topic])
    deadline = time.monotonic() + 300
    while topic in admin.list_topics():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def codecs_on_disk(broker: Broker, topic: str) -> set[str]:
    """The codecs of a topic's batches, without those that only end a transaction."""
    found = set()
    for path in paths_in(broker.data, f"**/{topic}-*/*.log"):
        data, at = path.read_bytes(), 0
        while at + 61 <= len(data):
            size, attributes = struct.unpack_from(">i", data, at + 8)[0], struct.unpack_from(">h", data, at + 21)[0]
            if not attributes & 0x20:
                found.add(CODECS[attributes & 7])
            at += 12 + size
    return found


def edges(first: int, count: int) -> list[bytes]:
    return [orjson.dumps({"op": "add_edge", "src": k, "dst": k + 1}) for k in range(first, first + count)]


def test_every_codec_goes_out_in_both_deliveries(broker: Broker, tmp_path: Path) -> None:
    for codec in CODECS:
        for delivery in DELIVERIES:
            make_topic(broker, topic_of(codec, delivery), 1)
    command = [sys.executable, "-m", "tests.support.kafka.codec_job", broker.address, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for codec in CODECS:
        for delivery in DELIVERIES:
            topic = topic_of(codec, delivery)
            [records] = read_topic(broker, topic, isolation_level="read_committed").values()
            assert [int(record.key) for record in records] == list(range(RECORDS)), topic
            assert codecs_on_disk(broker, topic) == {codec}
            reader = TopicReader(KafkaAddress(broker.address, topic), ClientProperties(), {})
            served = []
            while not reader.caught_up:
                served += reader.read(1.0)
            reader.close()
            assert len(served) == RECORDS, "what `freshet serve --kafka` reads"


def test_every_codec_comes_in(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """One topic that is plain first and compressed later; what comes out is compressed, too, and committed."""
    given = make_input(tmp_path / "in", 1_000)
    lines = given.events.read_bytes().splitlines()
    make_topic(broker, "all", 1)
    for number, codec in enumerate(CODECS):
        send(broker, "all", {0: lines[200 * number : 200 * (number + 1)]}, codec)
    assert codecs_on_disk(broker, "all") == set(CODECS)
    config = tmp_path / "job.yaml"
    config.write_text("kafka:\n  compression.type: zstd\n")
    topic = f"kafka://{broker.address}/all"
    job = Job(TopicInput(given.model, given.events, 1_000, topic=topic, config=config), tmp_path / "out")
    jobs.append(job)
    out = ("--embeddings-to", f"kafka://{broker.address}/rows", "--delivery", "exactly-once")
    done = job.done("--until", "latest", "--epoch-events", 100, *out)
    assert (done["events"], done["rejected"]) == (1_000, 0)
    job.check()
    assert codecs_on_disk(broker, "rows") == {"zstd"}
    records = [one for found in read_topic(broker, "rows", isolation_level="read_committed").values() for one in found]
    last = {record.key: record.value and parse(record.value)["epoch"] for record in records}
    log = read_log(job.out)
    rows = {b"%d" % log.id[k]: None if log.deleted[k] else int(log.epoch[k]) for k in range(len(log.id))}
    assert last == rows


def test_until_latest_goes_on_where_it_ended(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """Two topics, one of them read to its end when it is stopped; an empty partition; all of them longer afterwards.

    Each partition has a reader first, two of the long topic have read theirs to the end when it is stopped; after that
    each topic has one reader.
    """
    given = make_input(tmp_path / "in", 10)
    make_topic(broker, "long", 3)
    make_topic(broker, "short", 2)
    send(broker, "long", {0: edges(0, 100), 1: edges(10_000, 6_000)})
    send(broker, "short", {0: edges(500_000, 50)})
    long, short = (f"kafka://{broker.address}/{topic}" for topic in ("long", "short"))
    job = Job(TopicInput(given.model, given.events, 0, topic=long), tmp_path / "out")
    jobs.append(job)
    options = ("--events", short, "--until", "latest", "--id-type", "int", "--epoch-events", 100)
    job.start(*options, "--readers", 3, faults={"slow": {"parser-0": 1000}, "chunk": 100})
    job.until(lambda: read_positions(job.out).get(short) == {0: 50} and progress(job.out)["events"] >= 500)
    assert job.stop().code == 0
    assert 500 <= job.wait().result["events"] < 6_150
    # All partitions grow, also one that is read already and the empty one.
    send(broker, "long", {0: edges(100, 7), 1: edges(70_000, 5), 2: edges(600_000, 3)})
    send(broker, "short", {0: edges(500_050, 11)})
    ended = job.run(*options, "--resume", "latest", "--readers", 1)
    assert ended.code == 0, ended.errors
    expected = 6_150 + 15 + 11
    assert (ended.result["events"], ended.result["rejected"]) == (expected, 0)
    assert read_run(job.out)["topics"][0]["end"] == {"0": 107, "1": 6_005, "2": 3}
    again = job.run(*options, "--resume", "latest")
    assert (again.code, again.result["events"]) == (0, expected)
    assert again.last_line.endswith("has taken in all of its input")
    # The next night, with a partition that was added.
    with admin_client(KafkaAddress(broker.address, "short"), ClientProperties()) as admin:
        admin.create_partitions({"short": NewPartitions(3)})
    send(broker, "short", {1: edges(700_000, 4), 2: edges(800_000, 9)})
    night = job.run(*options, "--resume", "auto")
    assert (night.code, night.result["events"]) == (0, expected + 13), night.errors
    job.check("--events", short)
    assert len(complete_states(job.out / "checkpoints")) == 2, "that of the stop, and where the next night goes on"
    # A job that ended and kept no state says what it leaves out.
    topic_ended(job.out, 1).touch()
    send(broker, "short", {1: edges(700_004, 2)})
    refused = job.run(*options, "--resume", "auto")
    assert refused.code == 2
    assert "short: 2 messages came since the job in" in refused.errors


@pytest.mark.long
def test_attributes_of_edges_survive_a_kill_and_go_on_from_an_export(
    broker: Broker, tmp_path: Path, jobs: list[Job]
) -> None:
    """Messages of JSON and of Arrow, some with attributes that are none; each of these is one dead letter.

    The rest of the stream comes from a file. It leads from the export to the rows of a job that reads the whole stream.
    """
    layers = [attending("gatv2", IN_WIDTH, 8, heads=2), {"type": "relu"}, gine(8, 5)]
    given = make_input(tmp_path / "in", 1_500, layers=layers, edge_width=EDGE_WIDTH, types=("a", "b"))
    lines = given.events.read_bytes().splitlines()
    bad = [b'{"op":"add_edge","src":2,"dst":9,"attr":%s}' % attr for attr in BAD_ATTRS]
    for k, line in enumerate(bad):
        lines.insert(200 + 30 * k, line)
    parts = [tmp_path / f"{k}.jsonl" for k in range(3)]
    for path, some in zip(parts, (lines[:700], lines[700:1_200], lines[1_200:]), strict=True):
        path.write_bytes(b"\n".join(some))
    topic = KafkaAddress(broker.address, "attributes")
    produce(events=[str(parts[0])], to=topic, partitions=1)
    job = Job(TopicInput(given.model, given.events, 0, topic=str(topic)), tmp_path / "O")
    jobs.append(job)
    shape = ("--epoch-events", 50, "--parts", 2, "--checkpoint-interval", "500ms")
    job.start(*shape)
    job.until(lambda: progress(job.out)["events"] >= 700 and complete_states(job.out / "checkpoints"))
    job.kill()
    produce(events=[str(parts[1])], to=topic, batch=70, message_format="arrow")
    job.start("--resume", "latest")
    job.until(lambda: progress(job.out)["events"] == 1_200)
    assert job.stop().code == 0
    done = job.wait().result
    assert (done["events"], done["rejected"]) == (1_200, len(bad))
    letters = [orjson.loads(line) for line in (job.out / "dead_letters.jsonl").read_bytes().splitlines()]
    raws = {one["offset"]: one["raw"].encode() for one in letters}  # those behind the last checkpoint came again
    assert [raws[offset] for offset in sorted(raws)] == bad
    exported = job.exported(tmp_path / "S")
    assert exported.code == 0, exported.errors
    edges = pq.read_table(tmp_path / "S" / "edges.parquet", columns=["type", "attr"])
    assert edges.schema.field("attr").type == pa.list_(pa.float32(), EDGE_WIDTH)
    assert any(map(any, edges["attr"].to_pylist())) and set(edges["type"].to_pylist()) == {None, "a", "b"}

    rest = Job(Input(given.model, parts[2], 0, tmp_path / "S"), tmp_path / "rest")
    rest.done("--runtime", "local", "--parts", 3, "--ignore-positions")
    whole = Job(Input(given.model, parts[0], 0), tmp_path / "whole")
    whole.done("--runtime", "local", "--events", parts[1], "--events", parts[2])
    whole.check("--events", parts[1], "--events", parts[2])
    ends = [ChangeLogReader(one.out).final() for one in (rest, whole)]
    places = [np.argsort(end.ids) for end in ends]
    np.testing.assert_array_equal(*(end.ids[place] for end, place in zip(ends, places, strict=True)))
    vectors = (end.vectors[place] for end, place in zip(ends, places, strict=True))
    np.testing.assert_allclose(*vectors, rtol=1e-4, atol=1e-5)


def test_a_topic_that_was_made_again_is_not_read_on(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """Neither by a job that runs, however long the new one is, nor by a resume, a check or a server."""
    given = make_input(tmp_path / "in", 10)
    make_topic(broker, "again", 1)
    send(broker, "again", {0: edges(0, 300)})
    topic = KafkaAddress(broker.address, "again")
    reader = TopicReader(topic, ClientProperties(), {})
    reader.close()
    job = Job(TopicInput(given.model, given.events, 0, topic=str(topic)), tmp_path / "out")
    jobs.append(job)
    job.start("--epoch-events", 100)
    job.until_epoch(3)
    make_again(broker, "again")
    send(broker, "again", {0: edges(0, 3_000)})
    ended = job.wait()
    assert ended.code == 3, ended.errors
    assert "freshet: the topic again was deleted" in ended.last_line
    assert "freshet export" in ended.last_line
    assert "restarted" not in ended.errors
    resumed = job.run("--resume", "latest")
    assert (resumed.code, "was deleted and recreated" in resumed.last_line) == (2, True), resumed.errors
    checked = job.checked()
    assert (checked.code, "was deleted and recreated" in checked.last_line) == (2, True), checked.errors
    with pytest.raises(OffsetsGoneError, match="was deleted and recreated"):
        TopicReader(topic, ClientProperties(), {0: 10}, reader.id)


@pytest.mark.long
def test_a_broker_that_comes_back_empty_ends_the_job(tmp_path: Path, jobs: list[Job]) -> None:
    given = make_input(tmp_path / "in", 10)
    require_jars()
    broker = start_broker(tmp_path / "broker", sasl=False, tls=False, timeout_s=BROKER_S)
    try:
        make_topic(broker, "t", 1)
        send(broker, "t", {0: edges(0, 300)})
        job = Job(TopicInput(given.model, given.events, 0, topic=f"kafka://{broker.address}/t"), tmp_path / "out")
        jobs.append(job)
        job.start("--epoch-events", 100)
        job.until_epoch(3)
        broker.kill()
        shutil.rmtree(tmp_path / "broker")
        broker = start_broker(tmp_path / "broker", broker.port, sasl=False, tls=False, timeout_s=BROKER_S)
        make_topic(broker, "t", 1)
        send(broker, "t", {0: edges(0, 1_000)})
        ended = job.wait()
        assert ended.code == 3, ended.errors
        assert "another cluster" in ended.last_line
        resumed = job.run("--resume", "latest")
        assert (resumed.code, "another cluster" in resumed.last_line) == (2, True), resumed.errors
    finally:
        broker.stop()


# -- the cut log of a job whose checkpoints are on an object store -----------------------------------------------------

JOB, NONE = "0123456789abcdef", ClientProperties()


def opened_cuts(address: KafkaAddress, run: int | None = None) -> CutTopic:
    return CutTopic(open_channel(str(address), {}, {}, JOB), JOB, run)


def test_a_zombie_seals_nothing_and_a_restore_reads_what_was_committed(broker: Broker, tmp_path: Path) -> None:
    address = address_of(JOB, [("--events", KafkaAddress(broker.address, "events"))])
    told: list[str] = []
    topic_id = make_cut_topic(address, NONE, told.append)
    check_cut_topic(address, topic_id, tmp_path, NONE, told.append)
    assert [line.split(":")[0] for line in told] == ["the cut log is the topic kafka"]
    zombie = opened_cuts(address, run=1)
    for cut in CUTS:
        zombie.append(cut)
    channel = zombie.channel
    assert isinstance(channel, KafkaChannel)
    channel.producer.begin_transaction()  # and dies here: a cut that was sent and not committed
    channel.producer.send(address.topic, b"zombie", partition=PARTITION).get(timeout=120)
    log = opened_cuts(address, run=2)
    assert (log.attempt, log.last) == (2, 4)
    assert [log.cut_of(epoch) for epoch in range(1, 5)] == CUTS
    channel.producer = None  # as a process that was stopped: it does not know
    with pytest.raises(FencedError, match="run 2 of the job has taken over"):
        opened_cuts(address, run=1)
    for epoch in range(5, 9):
        log.append(Cut(epoch, 31, False))
    same_run = opened_cuts(address, run=2)
    with pytest.raises(FencedError, match="another attempt of the job has taken over kafka://"):
        log.append(Cut(9, 99, False))
    same_run.append(Cut(9, 32, True))
    assert opened_cuts(address).cut_of(9) == Cut(9, 32, True)
    copy_topic(address, NONE, JOB, tmp_path / "cuts")
    assert list(CutLog(tmp_path / "cuts", JOB).cuts.values())[:4] == CUTS
    _is_trimmed(address, tmp_path)
    _is_refused(address, topic_id, tmp_path)


def _is_trimmed(address: KafkaAddress, tmp_path: Path) -> None:
    """What no state needs goes, once all retained checkpoints are newer than what says so."""
    log = opened_cuts(address)
    log.settle(0)
    for epoch in range(10, 400):
        log.append(Cut(epoch, 40, False))
    log.settle(9)
    log.append(Cut(400, 40, False))
    trimmer = CutTrimmer(address, NONE, JOB)
    assert trimmer.trim(1.0) == 0
    assert trimmer.trim(4e12 + CLOCKS_MS) == 0, "few offsets"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("freshet.job.kafka.cut_topic._TRIM_OFFSETS", 1)
        assert trimmer.trim(4e12 + 2 * CLOCKS_MS) > 9
    log.close()
    copy_topic(address, NONE, JOB, tmp_path / "rest")
    assert CutLog(tmp_path / "rest", JOB).first == 10


def _is_refused(address: KafkaAddress, topic_id: str, tmp_path: Path) -> None:
    with admin_client(address, NONE) as admin:
        delete_topic(admin, address.topic)
    with pytest.raises(UsageError, match=f"the cut log {address} is gone"):
        check_cut_topic(address, topic_id, tmp_path, NONE, print)
    make_cut_topic(address, NONE, print)
    with pytest.raises(UsageError, match=f"{address.topic} was deleted and recreated"):
        check_cut_topic(address, topic_id, tmp_path, NONE, print)
