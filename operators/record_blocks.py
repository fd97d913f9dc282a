"""Blocks of Kafka records: the bytes in which they get from Python to Java.

A block is records, one after the other. A record is three little-endian numbers, the key and the value. The numbers
are the bytes of the key (int32), those of the value (int32; -1: a tombstone) and the epoch that becomes the header
EPOCH_HEADER (int64; -1: there is none).

A kernel of `operators.sink.kafka_records` writes changes in this form, and `operators.parser.letter_box` rejected
records; `job/kafka/RecordSplitter.java` and `RecordSerializer.java` read it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

EPOCH_HEADER = "epoch"  # of a tombstone: the epoch of the deletion, in decimal
JOB_HEADER = "job"  # of a record with a value: a TopicMark
BLOCK_BYTES = 128 << 10  # about: one element for many records is what makes it fast
HEAD = struct.Struct("<iiq")
NONE = -1
# How an embedding in binary begins, and no JSON: the version of the form, the first six bytes of the model's SHA-256,
# 1 where ids are strings, and the epoch. float32 of the same byte order follow.
BINARY_HEAD = struct.Struct("<B6sBq")
BINARY_VERSION, MODEL_BYTES = 1, 6


_MARK = re.compile(rb"([0-9A-Za-z_-]{1,64}) (all|changes)(?: (.{1,1024}))?", re.DOTALL)


class TopicMark(NamedTuple):
    """Text of a header of each record with an embedding, about its topic: `JOB all` or `JOB changes KIND`.

    `job` is the job's id; `has_all`: the topic has the rows of the job's snapshot, too; `kind` is that of the vertices,
    empty where the model has no kinds.
    """

    job: str
    has_all: bool
    kind: str = ""

    def encode(self) -> bytes:
        """Return the value of the header."""
        words = (self.job, "all" if self.has_all else "changes", *((self.kind,) if self.kind else ()))
        return " ".join(words).encode()

    @staticmethod
    def decode(value: object) -> TopicMark | None:
        """The inverse of `encode`; None for what is none."""
        found = _MARK.fullmatch(value) if isinstance(value, bytes) else None
        if found is None:
            return None
        return TopicMark(found[1].decode(), found[2] == b"all", (found[3] or b"").decode(errors="replace"))

    @staticmethod
    def of(headers: Iterable[tuple[str, object]] | None) -> TopicMark | None:
        """Return the mark among a record's headers, None where there is none."""
        return TopicMark.decode(next((value for name, value in headers or () if name == JOB_HEADER), None))


class KafkaRecord(NamedTuple):
    """A record; `value` is None in a tombstone, `epoch` where it has no such header."""

    key: bytes
    value: bytes | None
    epoch: int | None = None


def encode_record(record: KafkaRecord) -> bytes:
    """Return the bytes of a record in a block."""
    key, value, epoch = record
    head = HEAD.pack(len(key), NONE if value is None else len(value), NONE if epoch is None else epoch)
    return b"".join((head, key, value or b""))


def blocks_of(records: Iterable[KafkaRecord]) -> Iterator[bytes]:
    """Return records in blocks of about `BLOCK_BYTES`."""
    held, size = list[bytes](), 0
    for record in map(encode_record, records):
        held.append(record)
        size += len(record)
        if size >= BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def records_of(block: bytes) -> Iterator[KafkaRecord]:
    """Return the records of a block."""
    at = 0
    while at < len(block):
        key, value, epoch = HEAD.unpack_from(block, at)
        at += HEAD.size
        end = at + key + max(value, 0)
        yield KafkaRecord(
            block[at : at + key], None if value < 0 else block[at + key : end], None if epoch < 0 else epoch
        )
        at = end
