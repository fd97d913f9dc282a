r"""Kafka records as lines of text: how they get from Python to Flink's SQL, which makes records of them again.

A block is lines with LINE_END between them. A line is KEY, TAB and VALUE; of a tombstone KEY, TAB, TAB and its epoch,
which becomes the record's header EPOCH_HEADER. A key that is not plain (empty, or with anything but printable ASCII) is
written as TAB and its bytes in hexadecimal, followed like any other by TAB and the rest. VALUE is JSON in ASCII. So no
key can break a block, and ASCII crosses to Java at the least cost.

A kernel of `operators.sink.kafka_lines` writes changes in this form, and `operators.parser.letter_box` rejected
records; the SQL of `job.kafka.flink_sink` reads both.
"""

from __future__ import annotations

from collections.abc import Iterator

TAB, LINE_END = "\t", "\n"
EPOCH_HEADER = "epoch"  # of a tombstone: the epoch of the deletion, in decimal
BLOCK_BYTES = 128 << 10  # about: one element for many records is what makes it fast


def line_of(key: bytes, value: str) -> str:
    """The line of a record, its key in hexadecimal."""
    return f"{TAB}{key.hex()}{TAB}{value}"


def records_of(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the records in a block without tombstones."""
    for line in block.split(LINE_END.encode()):
        key, value = line.rsplit(TAB.encode(), 1)
        yield bytes.fromhex(key[1:].decode()) if key.startswith(TAB.encode()) else key, value
