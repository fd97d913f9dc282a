"""Readers of a service, each in a process of its own, and the answers that they note, in short.

`python -m tests.drills.swap_answers WAY ADDRESS ASKED FILE EVERY_S` reads until its stdin ends. ASKED is a JSON file of
lists of ids. FILE becomes an Arrow stream with a row for each answer; 64 bits stand for the bits of each row and its
id, of the logits likewise. Of a whole table there are the sums of these.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from tests.support.runs.jobs import ROOT

WHOLE, NEAREST = -1, -2  # in place of the number of a list of ids
TIMEOUT_S = 60.0
_BATCH = 64
SCHEMA = pa.schema(
    [
        ("began_s", pa.float64()),  # since 1970
        ("took_ms", pa.float64()),
        ("error", pa.string()),
        ("asked", pa.int32()),
        ("epoch", pa.int64()),
        ("generation", pa.int64()),  # -1: not said
        ("model", pa.string()),
        ("as_of_ms", pa.int64()),  # -1: not said
        ("count", pa.int64()),
        ("ids", pa.list_(pa.int64())),  # none of a whole table
        ("own", pa.list_(pa.int64())),  # the rows' own epochs; of a whole table the smallest and the largest
        ("owns", pa.list_(pa.uint64())),  # of a whole table the sum of the digests of own epochs
        ("rows", pa.list_(pa.uint64())),
        ("logits", pa.list_(pa.uint64())),  # none where they were not asked for
    ]
)
_NOTHING = {"epoch": -1, "generation": -1, "as_of_ms": -1, "asked": WHOLE, "count": 0, "model": ""}
_FACTORS = np.random.default_rng(7).integers(1 << 62, size=4096, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def digests(ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """64 bits for each id and the bits of its row: (n,) uint64 of (n,) int64 and (n, w) float32 or int64."""
    words = np.ascontiguousarray(rows).view(np.uint32).reshape(len(ids), -1)
    found = _mixed(ids.astype(np.int64).view(np.uint64)) * np.uint64(3)
    for k in range(words.shape[1] if len(ids) else 0):
        found += words[:, k].astype(np.uint64) * _FACTORS[k]
    return _mixed(found)


def _mixed(words: np.ndarray) -> np.ndarray:
    """As in SplitMix64, so that a sum of digests is that of no other rows."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: np.ndarray = words ^ (words >> np.uint64(31))
    return found


class Rows(NamedTuple):
    """An answer. Shapes: ids, own (n,); vectors (n, w); logits (n, classes) or None."""

    asked: int
    ids: np.ndarray
    own: np.ndarray
    vectors: np.ndarray
    logits: np.ndarray | None
    said: dict[str, Any]  # epoch, and generation, model and as_of_ms where the way has them

    def noted(self) -> dict[str, Any]:
        """As a line of the file."""
        rows, logits = digests(self.ids, self.vectors), np.empty(0, np.uint64)
        if self.logits is not None:
            logits = digests(self.ids, self.logits)
        own, owns, ids = self.own, np.empty(0, np.uint64), self.ids
        if self.asked == WHOLE:
            owns = digests(ids, own[:, None]).sum(keepdims=True)
            own, ids = np.array([own.min(initial=2**62), own.max(initial=-1)]), ids[:0]
            rows, logits = rows.sum(keepdims=True), logits.sum(keepdims=True) if len(logits) else logits
        more = {"ids": ids, "own": own, "owns": owns, "rows": rows, "logits": logits}
        return {"asked": self.asked, "count": len(self.ids), **self.said, **more}


Read = Callable[[int, list[int]], Rows]


def of_table(asked: int, table: pa.Table) -> Rows:
    """An answer over Flight, or of a mapped table."""
    said, count = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}, table.num_rows
    ids, own = (table[name].to_numpy() for name in ("id", "epoch"))
    vectors, logits = (_flat(table, name, count) for name in ("embedding", "logits"))
    assert vectors is not None
    numbers = {name: int(said[name]) for name in ("epoch", "generation", "as_of_ms") if name in said}
    return Rows(asked, ids, own, vectors, logits, {**numbers, "model": said.get("model", "")})


def _flat(table: pa.Table, name: str, count: int) -> np.ndarray | None:
    if name not in table.column_names:
        return None
    values: np.ndarray = table[name].combine_chunks().flatten().to_numpy()
    return values.reshape(count, -1)


def reader(way: str, address: str) -> Read:
    """Return a function that reads by a way: http, and by a client rows, get and all (with logits), or nearest."""
    if way == "http":
        return _by_http(address)
    from freshet import BadRequestError, EmbeddingClient

    client = EmbeddingClient(address, timeout=TIMEOUT_S)

    def rows(number: int, ids: list[int]) -> Rows:
        found = client.rows(ids)
        return Rows(number, found[0], found[1], found[2], None, {"epoch": found.epoch})

    def nearest(_: int, ids: list[int]) -> Rows:
        for k, one in enumerate(ids, 1):
            try:
                return of_table(NEAREST, client.nearest(one, k=8))
            except BadRequestError:  # that vertex is not there now
                if k == len(ids):
                    raise
        raise AssertionError(ids)

    return {
        "rows": rows,
        "get": lambda number, ids: of_table(number, client.get(ids, logits=True)),
        "all": lambda _, __: of_table(WHOLE, client.all(logits=True)),
        "nearest": nearest,
    }[way]


def _by_http(address: str) -> Read:
    import httpx

    client = httpx.Client(base_url=f"http://{address}", timeout=TIMEOUT_S, trust_env=False)

    def read(number: int, ids: list[int]) -> Rows:
        reply = client.post("/embeddings", json={"ids": ids})
        reply.raise_for_status()
        found = orjson.loads(reply.content)
        said = {name: found[name] for name in ("generation", "model", "as_of_ms") if found.get(name) is not None}
        one = [[row[name] for row in found["found"]] for name in ("id", "epoch", "embedding")]
        vectors = np.array(one[2], np.float32).reshape(len(one[0]), -1)
        ids_, own = np.array(one[0], np.int64), np.array(one[1], np.int64)
        return Rows(number, ids_, own, vectors, None, {"epoch": found["as_of"], **said})

    return read


def read_on(read: Read, asked: list[list[int]], file: Path, every_s: float, ended: threading.Event) -> None:
    """Read again and again, and note each answer, or what came in its place."""
    lines, number = list[dict[str, Any]](), 0
    with pa.ipc.new_stream(file, SCHEMA) as writer:
        while not ended.wait(every_s):
            number = (number + 1) % len(asked)
            line, began_s, began = dict[str, Any](), time.time(), time.perf_counter()
            try:
                found = read(number, asked[number])
                took_ms = 1e3 * (time.perf_counter() - began)
                line = found.noted()
            except Exception as error:  # whatever it is, it is counted
                took_ms, line = 1e3 * (time.perf_counter() - began), {"error": f"{type(error).__name__}: {error}"[:300]}
            lines.append({**_NOTHING, **line, "began_s": began_s, "took_ms": took_ms})
            if len(lines) == _BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(lines, SCHEMA))
                lines.clear()
        writer.write_batch(pa.RecordBatch.from_pylist(lines, SCHEMA))


class ReaderProcess:
    """A reader that runs; `end` leaves its answers in the file."""

    def __init__(self, name: str, way: str, address: str, asked: Path, file: Path, every_s: float) -> None:
        self.name, self.way, self.file = name, way, file
        command = [sys.executable, "-m", "tests.drills.swap_answers", way, address, asked, file, every_s]
        with file.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                [*map(str, command)], cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def end(self, timeout_s: float = 2 * TIMEOUT_S) -> pa.Table:
        """Have it read no more; its answers.

        Raises: AssertionError where it has ended before, or does not.
        """
        assert self._process.poll() is None, self._said()
        self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, self._said()
        with pa.ipc.open_stream(self.file) as stream:
            return stream.read_all()

    def kill(self) -> None:
        """End it at once."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _said(self) -> str:
        return f"{self.name}: exit code {self._process.poll()}\n{self.file.with_suffix('.log').read_text()[-2000:]}"


def main(way: str, address: str, asked: str, file: str, every_s: str) -> None:
    """Read until stdin ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    read_on(reader(way, address), orjson.loads(Path(asked).read_bytes()), Path(file), float(every_s), ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
