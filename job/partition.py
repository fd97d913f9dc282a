"""`freshet partition`: what each partitioner makes of a graph or stream, without a model and without a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from job.errors import UsageError
from operators.event_files import Chunk, ChunkReader, EventFileError, plan_chunks
from operators.parser import Parser
from operators.snapshot import SnapshotError, open_snapshot
from partitioner.config import PartitionerConfig
from partitioner.core import Partitioner
from partitioner.events import OP_ADD_EDGE, Events

EPOCH_EVENTS = 1000
COLUMNS = (
    ("replication_factor", "replication", ".3f"),
    ("cut_share", "cut edges", ".1%"),
    ("split_share", "split vertices", ".1%"),
    ("vertex_balance", "vertex balance", ".3f"),
    ("edge_balance", "edge balance", ".3f"),
    ("edges_per_s", "edges/s", ",.0f"),
)


def partition(
    *, parts: int, events: Sequence[str], snapshot: Path | None, partitioners: Sequence[str], undirected: bool
) -> int:
    """Place the graph by each partitioner; a table on stderr, a JSON line each on stdout. Returns the exit code.

    Raises: UsageError for input that can't be read.
    """
    results = []
    for name in partitioners:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            results.append(_measure(name, parts, events, snapshot, undirected))
        except (EventFileError, SnapshotError) as error:
            raise UsageError(str(error)) from None
        print(orjson.dumps(results[-1]).decode(), flush=True)
    _show(results, parts)
    return 0


def _measure(name: str, parts: int, events: Sequence[str], snapshot: Path | None, undirected: bool) -> dict[str, Any]:
    """Place the snapshot at once, the stream in epochs; the time is the Partitioner's, without reading and parsing."""
    core: Partitioner | None = None
    seconds = 0.0
    edge_events = 0
    for number, block in enumerate(_blocks(events, snapshot)):
        if core is None:
            kind = block.a.kind
            core = Partitioner(parts, block.in_width, PartitionerConfig(name, undirected=undirected, id_kind=kind))
            core.apply(Events.empty(block.in_width, kind))  # what is compiled at the first call is no placement
        step = len(block) if number == 0 and snapshot is not None else EPOCH_EVENTS
        for begin in range(0, len(block), max(1, step)):
            epoch = block.slice(begin, begin + step)
            since = time.perf_counter()
            core.apply(epoch)
            seconds += time.perf_counter() - since
            edge_events += int((epoch.op >= OP_ADD_EDGE).sum())
    stats = core.stats().to_dict() if core is not None else {"parts": parts, "vertices": 0, "edges": 0}
    rate = round(edge_events / seconds, 1) if seconds else None
    return {"partitioner": name, **stats, "edges_per_s": rate}


def _blocks(events: Sequence[str], snapshot: Path | None) -> Iterator[Events]:
    """The snapshot's events as one block, as a job takes them, then the stream's."""
    width, kind = None, None
    if snapshot is not None:
        width = _snapshot_width(snapshot)
        opened = open_snapshot(snapshot, width)
        kind = opened.id_kind
        yield Events.concatenate(list(opened.blocks()))
    chunks = plan_chunks(events) if events else []
    if width is None:
        width = _stream_width(chunks)
    parser, reader, rejected = Parser(width, kind), ChunkReader(), 0
    for chunk in chunks:
        block, letters = parser.parse_chunk(chunk, reader.read(chunk))
        rejected += len(letters)
        if len(block):
            yield block
    if rejected:
        print(f"{rejected:,} records were no events (see `freshet run`'s dead letters for reasons)", file=sys.stderr)


def _snapshot_width(snapshot: Path) -> int:
    """Width of the features of the snapshot's vertices."""
    try:
        with pq.ParquetFile(snapshot / "vertices.parquet") as file:
            x = file.schema_arrow.field("x").type
            size = getattr(x, "list_size", None)
            if size is None:
                first = next(file.iter_batches(1, columns=["x"]), None)
                size = len(first["x"][0]) if first is not None and first.num_rows else 1
    except (OSError, KeyError, pa.ArrowException) as error:
        message = f"{snapshot / 'vertices.parquet'}: column x can't be read: {error}"
        raise SnapshotError(message) from None
    return int(size)


def _stream_width(chunks: Sequence[Chunk]) -> int:
    """Width of the first features in the stream, 1 where it has none."""
    reader = ChunkReader()
    for chunk in chunks:
        data = reader.read(chunk)
        if isinstance(data, bytes):
            for line in data.split(b"\n"):
                if b'"x"' in line:
                    try:
                        return max(1, len(orjson.loads(line)["x"]))
                    except (orjson.JSONDecodeError, KeyError, TypeError):
                        continue
        elif "x" in data.schema.names:
            longest = pc.max(pc.list_value_length(data.column("x"))).as_py()
            if longest:
                return int(longest)
    return 1


def _show(results: Sequence[dict[str, Any]], parts: int) -> None:
    first = results[0]
    table = Table(title=f"{first['vertices']:,} vertices, {first['edges']:,} edges, {parts} parts")
    table.add_column("partitioner")
    for _, title, _ in COLUMNS:
        table.add_column(title, justify="right")
    for one in results:
        cells = [format(one[name], spec) if one.get(name) is not None else "-" for name, _, spec in COLUMNS]
        table.add_row(one["partitioner"], *cells)
    Console(stderr=True, width=110).print(table)
