"""Changed bytes at a Flight server: valid messages of lookups, a few bytes of each other, sent past any client library.

Arrow's reader checks neither lengths nor offsets of what it reads, so a message could make the server read outside its
memory. The server runs in a process of its own: its death is seen, and a valid lookup must be answered right all along.
"""

from __future__ import annotations

import multiprocessing
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from freshet import EmbeddingClient

METHOD = "/arrow.flight.protocol.FlightService/DoExchange"
_STREAM = 16  # messages a call, as long as the server takes them
_LOOK = 500  # messages between two looks at the server
_DESCRIPTOR, _HEADER, _METADATA, _BODY = 1, 2, 3, 1000  # fields of FlightData
_ANSWERED = re.compile(rb'\{"(error|epoch)"')
_VALUES = (0, 1, 2, 7, 0x7F, 0xFF, 1 << 16, 1 << 30, (1 << 31) - 1, (1 << 63) - 1, (1 << 64) - 1)
_ANSWER_S, _START_S = 60.0, 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Messages sent, how many were answered with rows, refused by a sentence, or ended their stream; wrong answers."""

    messages: int
    rows: int
    refused: int
    ended: int
    wrong: int
    alive: bool


def fuzz(kind: str, messages: int, seed: int) -> Outcome:
    """Send that many changed messages to a server of a job with ids of a kind (`int` or `string`)."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        server = spawn.Process(target=_serve, args=(Path(folder) / "O", kind, theirs), daemon=True)
        server.start()
        try:
            if not ours.poll(_START_S):
                msg = f"no server after {_START_S:g} s"
                raise TimeoutError(msg)
            return _Fuzzer(kind, ours.recv(), random.Random(seed)).run(messages, server.is_alive)
        finally:
            if server.is_alive():
                ours.send(None)
            server.join(_ANSWER_S)
            if server.is_alive():
                server.kill()
                server.join()


def _serve(out: Path, kind: str, pipe: Connection) -> None:
    from tests.support.serving.served import Served

    served = Served(out, kind)
    pipe.send(served.port)
    pipe.recv()
    served.close()


class _Fuzzer:
    def __init__(self, kind: str, port: int, drawn: random.Random) -> None:
        ids = pa.array([2, 3, 4, 99]) if kind == "int" else pa.array(["v2", "v3", "v4", "nobody"])
        batch = pa.RecordBatch.from_arrays([ids], ["id"])
        self._ids: list[Any] = ids.to_pylist()
        self._schema, self._batch = _parts(batch.schema.serialize()), _parts(batch.serialize())
        self._port, self._drawn = port, drawn
        self._counts = {"rows": 0, "refused": 0, "ended": 0, "wrong": 0}

    def run(self, messages: int, is_alive: Any) -> Outcome:
        sent = looked = 0
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            call = channel.stream_stream(METHOD)
            while sent < messages and is_alive():
                sent += self._stream(call)
                if sent - looked >= _LOOK:
                    looked = sent
                    self._counts["wrong"] += not self._is_right()
        right = is_alive() and self._is_right()
        self._counts["wrong"] += not right
        return Outcome(sent, alive=bool(is_alive()), **self._counts)

    def _stream(self, call: Any) -> int:
        """One call, whose messages are changed each, until the server ends it; how many it has read."""
        answered: SimpleQueue[bool] = SimpleQueue()
        sent = 0

        def requests() -> Iterator[bytes]:
            nonlocal sent
            yield _field(_DESCRIPTOR, b"\x08\x02" + _field(2, b"{}")) + _framed(*self._schema)  # its type is CMD
            while sent < _STREAM and (sent == 0 or answered.get()):
                sent += 1
                yield self._changed()

        try:
            for answer in call(requests(), timeout=_ANSWER_S):
                if _ANSWERED.search(answer) is None:  # the schema, which comes first
                    continue
                self._counts["refused" if b'"error"' in answer else "rows"] += 1
                answered.put(True)
        except grpc.RpcError:
            self._counts["ended"] += 1
        answered.put(False)
        return sent

    def _changed(self) -> bytes:
        """A batch, some bytes of its header, its metadata or its body replaced."""
        drawn = self._drawn
        parts = [bytearray(one) for one in self._batch]
        [raw] = drawn.choices(parts, [3, 1, 6])
        for _ in range(drawn.choice([1, 1, 2, 4])):
            width = min(drawn.choice([1, 4, 8]), len(raw))
            at = drawn.randrange(len(raw) - width + 1)
            value = drawn.choice(_VALUES)
            raw[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        return _framed(*map(bytes, parts))

    def _is_right(self) -> bool:
        with EmbeddingClient(f"127.0.0.1:{self._port}", timeout=_ANSWER_S) as client:
            ids, epochs, rows = client.rows(self._ids)
        known = list(ids) == self._ids[:3] and epochs.tolist() == [1] * 3
        return known and np.array_equal(rows[:, 0], [1.0, -2.0, 3.0])


def _parts(encapsulated: pa.Buffer) -> tuple[bytes, bytes, bytes]:
    """An encapsulated IPC message as header, metadata and body of FlightData."""
    raw = encapsulated.to_pybytes()
    size = int.from_bytes(raw[4:8], "little")
    return raw[8 : 8 + size], b'{"timeout":1}', raw[8 + size :]


def _framed(header: bytes, metadata: bytes, body: bytes) -> bytes:
    return _field(_HEADER, header) + _field(_METADATA, metadata) + _field(_BODY, body)


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes in protobuf's encoding."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
