"""The SQL of the job on lines with ids of all kinds, in Flink: prints how many records come of it, and tombstones."""

from __future__ import annotations

import numpy as np

from freshet.job.kafka import flink_sink
from freshet.job.machine.java import prepare_environment
from freshet.operators.record_lines import EPOCH_HEADER, LINE_END, TAB
from freshet.operators.sink.coalesce import Changes, TextIds
from freshet.operators.sink.kafka_lines import Lines
from tests.support.kafka.records import split_epochs

ODD = ["", "a", "tab\there", "line\nend", 'quote"\\', "ä", "😀 and é", "\x00\x1f\x7f", "x" * 300, " ", "%_", "\t\t"]


def main() -> None:
    prepare_environment()
    from pyflink.common import Row, Types
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    texts = [text.encode() for text in (*ODD, *ODD)]
    n = len(texts)
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    ids = TextIds(offsets, np.frombuffer(b"".join(texts), np.uint8).copy())
    gone = np.arange(n) < len(ODD)
    blocks = list(Lines("m").blocks(Changes(ids, np.arange(n) * 10, gone, np.ones((n, 3), np.float32))))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    tables = StreamTableEnvironment.create(env)
    rows = [Row(lines=block.decode()) for block in blocks]
    stream = env.from_collection(rows, type_info=Types.ROW_NAMED(["lines"], [Types.STRING()]))
    tables.create_temporary_view("lines", tables.from_data_stream(stream))
    sql = flink_sink._SQL.format(view="lines", topic="t", tab=TAB, end=LINE_END, header=EPOCH_HEADER)
    found = []
    for key, value, headers in tables.execute_sql(sql.partition("SELECT")[1] + sql.partition("SELECT")[2]).collect():
        epoch = None if headers is None else int(bytes(headers[EPOCH_HEADER]))
        found.append((bytes(key), None if value is None else bytes(value), epoch))
    expected = [record for block in blocks for record in split_epochs(block)]
    assert found == expected, [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]][:3]
    print(len(found), sum(value is None for _, value, _ in found))


if __name__ == "__main__":
    main()
