"""The job's Java on records with ids of all kinds, in Flink: prints how many records come of it, and tombstones."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import numpy as np

from freshet.job.kafka.flink_topics import SERIALIZER, SPLITTER, add_class, add_connector, java_operator
from freshet.job.machine.artifacts import connector_jars
from freshet.job.machine.java import prepare_environment
from freshet.operators.record_blocks import EPOCH_HEADER, JOB_HEADER, KafkaRecord, TopicMark, blocks_of, records_of
from freshet.operators.sink.coalesce import Changes, TextIds
from freshet.operators.sink.kafka_records import RecordBlocks

ODD = ["", "a", "tab\there", "line\nend", 'quote"\\', "ä", "😀 and é", "\x00\x1f\x7f", "x" * 300, " ", "%_", "\t\t"]
OTHERS = [KafkaRecord(b"", b""), KafkaRecord(b"\xff\x00", bytes(range(256))), KafkaRecord(b"k", None, 2**62)]
OTHERS += [KafkaRecord(b"no epoch", None), KafkaRecord(b"both", b"value", 0)]
MARK = TopicMark("0123456789abcdef", has_all=True, kind="Käufer und mehr").encode()


def main(folder: Path) -> None:
    prepare_environment()
    from pyflink.common import Row, Types
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.java_gateway import get_gateway

    texts = [text.encode() for text in (*ODD, *ODD)]
    n = len(texts)
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    ids = TextIds(offsets, np.frombuffer(b"".join(texts), np.uint8).copy())
    gone = np.arange(n) < len(ODD)
    changes = Changes(ids, np.arange(n) * 10, gone, np.ones((n, 3), np.float32))
    blocks = [*RecordBlocks("m").blocks(changes), *RecordBlocks("0a" * 6, "binary").blocks(changes), *blocks_of(OTHERS)]
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    add_connector(env, connector_jars())
    add_class(env, SERIALIZER, folder)
    rows = [Row(block) for block in blocks]
    stream = env.from_collection(rows, type_info=Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())]))
    records = java_operator(stream, SPLITTER, (), Types.PRIMITIVE_ARRAY(Types.BYTE()), "records")
    serializer, found = get_gateway().jvm.RecordSerializer("t", EPOCH_HEADER, JOB_HEADER, MARK.decode(), None), []
    cut = records._j_data_stream.executeAndCollect()
    while cut.hasNext():
        record = serializer.serialize(cut.next(), None, None)
        assert (record.topic(), record.partition(), record.timestamp()) == ("t", None, None)
        headers = [(header.key(), bytes(header.value())) for header in record.headers().toArray()]
        value = record.value()
        if value is not None:
            assert headers.pop() == (JOB_HEADER, MARK)
        assert [name for name, _ in headers] in ([], [EPOCH_HEADER])
        epoch = int(headers[0][1]) if headers else None
        found.append(KafkaRecord(bytes(record.key()), None if value is None else bytes(value), epoch))
    expected = list(chain.from_iterable(map(records_of, blocks)))
    assert found == expected, [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]][:3]
    print(len(found), sum(record.value is None for record in found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
